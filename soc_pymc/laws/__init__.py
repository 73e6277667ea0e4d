"""Laws: what a fitted prior says of theta and of outcomes."""
