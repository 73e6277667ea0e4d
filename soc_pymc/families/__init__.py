"""Conjugate families: records of closed forms, arrays in and arrays out."""
