"""What the compiler did, to be looked at: one document, and the page that shows it."""
