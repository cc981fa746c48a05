"""How sure an answer is: residuals and spreads in, standard deviations out."""
