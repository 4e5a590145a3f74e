package main

// counterMutants break rules of counters and values.
var counterMutants = []mutant{
	{
		name: "recipe/counter-overflow", breaks: "a write leaves a counter at version -1",
		file: "recipes/value/write.go",
		edits: []edit{
			{"if old.version == anyVersion-1 {", "if false {"},
		},
		tests: "./recipes/value -run ^TestAdd_SkipsVersionMinusOne$",
	},
	{
		name: "recipe/counter-set", breaks: "a counter whose data cannot be read cannot be set",
		file: "recipes/value/value.go",
		edits: []edit{
			{"err != nil && !connection.IsUnreadable(err)", "err != nil"},
		},
		tests: "./recipes/value -run ^TestCounter_RecoversFromForeignChanges$/^too_large_by_Set$",
	},
	{
		name: "recipe/counter-changes", breaks: "the changes of a counter end if its data cannot be read",
		file: "recipes/value/watch.go",
		edits: []edit{
			{"err != nil && found.Stat == nil {", "err != nil {"},
		},
		tests: "./recipes/value -run ^TestCounter_RecoversFromForeignChanges$/^too_large$",
	},
	{
		name: "recipe/counter-readable", breaks: "the changes of a counter do not contain a value that has become readable",
		file: "recipes/value/watch.go",
		edits: []edit{
			{" || w.readable != (err == nil)", ""},
		},
		tests: "./recipes/value -run ^TestWatch_DeliversValueThatBecomesReadable$",
	},
}
