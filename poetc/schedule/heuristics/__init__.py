"""What is found quickly and proves nothing."""
