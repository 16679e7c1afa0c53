"""What labs share: the user's data as arrays, and independent jobs on several processes."""
