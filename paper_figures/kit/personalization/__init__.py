"""The comparison of personalized methods in the experiments of DFedPGP and PFedDST."""
