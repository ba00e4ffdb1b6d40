"""What `import deepwire` offers: each module holds some of its functions, imported when they are used."""
