"""Body two: the same brain in virtual time, over engines that are models. No decision is taken here."""
