"""What only the paper needs: theory, simulations, data sets of its examples."""
