package main

// groupMutants break rules of groups and barriers.
var groupMutants = []mutant{
	{
		name: "recipe/unreadable-member", breaks: "a member whose data cannot be read ends the views of all",
		file: "recipes/group/view.go",
		edits: []edit{
			{"		if connection.IsUnreadable(err) {", "		if false && connection.IsUnreadable(err) {"},
		},
		tests: "./recipes/group -run ^TestWatch_IncludesForeignMembers$",
	},
	{
		name: "recipe/barrier-stray", breaks: "a child that is not a participant counts as one",
		file: "recipes/barrier/round.go",
		edits: []edit{
			{"return participants.MatchString(name)", "return !strings.HasPrefix(name, \"ready\")"},
		},
		tests: "./recipes/barrier -run ^TestDouble_IgnoresForeignChildren$",
	},
	{
		name: "recipe/barrier-order", breaks: "participants do not enter in the order of their arrivals",
		file: "recipes/barrier/round.go",
		edits: []edit{
			{"r.version, r.arrivals = stat.Version, stat.Pzxid", "r.version, r.arrivals = stat.Version, 1"},
		},
		tests: "./recipes/barrier -run ^TestDouble_AdmitsParticipantsInOrderOfArrival$",
	},
	{
		name: "recipe/barrier-place", breaks: "a participant that is not needed for a round loses its place",
		file: "recipes/barrier/double.go",
		edits: []edit{
			{"		if err := d.awaitEnd(ctx, sub, current.number); err != nil {\n			return 0, err", "		if d.awaitEnd(ctx, sub, current.number); true {\n			return 0, connection.ErrDeleted"},
		},
		tests: "./recipes/barrier -run ^TestDouble_AdmitsParticipantsInOrderOfArrival$",
	},
	{
		name: "recipe/barrier-deleted", breaks: "a participant does not enter again after the znode of the barrier was deleted",
		file: "recipes/barrier/double.go",
		edits: []edit{
			{"return errors.Is(err, zk.ErrNoNode) || ", "return "},
		},
		tests: "./recipes/barrier -run ^TestEnter_ContinuesAfterBarrierZnodeIsDeleted$",
	},
	{
		name: "recipe/barrier-twice", breaks: "a participant whose lease has expired counts twice",
		file: "recipes/barrier/double.go",
		edits: []edit{
			{"if ctx.Err() != nil || !isLost(err) {\n		removing", "if true {\n		removing"},
			{"		if isLost(err) {\n			return nil, removal // do not join again: two znodes would count as two participants\n		}\n", ""},
		},
		tests: "./recipes/barrier -run ^TestDouble_CountsParticipantOnceAfterLeaseExpiry$",
	},
}
