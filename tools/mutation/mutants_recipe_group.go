package main

// groupMutants break rules of groups, partitioners and barriers.
var groupMutants = []mutant{
	{
		name: "recipe/unreadable-member", breaks: "a member whose data cannot be read ends the views of all",
		file: "recipes/group/view.go",
		edits: []edit{
			{"		if connection.IsUnreadable(err) {", "		if false && connection.IsUnreadable(err) {"},
		},
		tests: "./recipes/group -run ^TestChanges_ForeignParticipant$",
	},
	{
		name: "recipe/part-lock", breaks: "a member leaves because one part cannot be locked",
		file: "recipes/group/share.go",
		edits: []edit{
			{"		case errors.Is(err, recipes.ErrConnClosed):\n", "		case !errors.Is(err, recipes.ErrSessionExpired):\n"},
		},
		tests: "./recipes/group -run ^TestPartitioner_ForeignParticipant$",
	},
	{
		name: "recipe/barrier-stray", breaks: "a child that is not a participant counts as one",
		file: "recipes/barrier/round.go",
		edits: []edit{
			{"	return found && len(id) >= idLength && strings", "	return found || found && len(id) >= idLength && strings"},
		},
		tests: "./recipes/barrier -run ^TestDouble_ForeignParticipant$",
	},
}
