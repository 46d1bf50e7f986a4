"""What several tests share: random clients, small runs, sites, studies, stand-ins."""
