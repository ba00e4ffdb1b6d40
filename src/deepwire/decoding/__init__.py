"""Decoding: searching and sampling translations, scoring given ones, text in and text out."""
