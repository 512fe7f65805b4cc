"""Files by location: local disks and object stores."""
