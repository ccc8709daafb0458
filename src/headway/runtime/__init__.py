"""What every body needs and only here: spawning tasks, the clock, the HTTP client.

Nothing here knows what Headway is for. Other rooms start no task, read no clock and make no HTTP session of their own,
so that there is one place to look when something runs too long, too late or too often.
"""
