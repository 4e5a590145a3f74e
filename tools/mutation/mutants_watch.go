package main

// watchMutants break rules of watches whose events are lost.
var watchMutants = []mutant{
	{
		name: "watch/written", breaks: "a read after a write of the caller is older than the write",
		file: "internal/zk/watch/reader.go",
		edits: []edit{
			{"if !r.written {", "if true {"},
		},
		tests: "./internal/zk/watch -run ^TestReader_WrittenPreventsOlderRead$",
	},
	{
		name: "watch/written-claim", breaks: "a lock is lost as deleted, and its znode remains, if a read before the create is shared",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"	c.reader.Written()\n", ""},
		},
		tests: "./recipes/lock -cpu 2 -count 4000 -run ^TestSingle_ExcludesGoroutinesOfOneConnection$",
	},
	{
		name: "watch/verify/children", breaks: "a lost event of the children of a znode is not noticed",
		file: "internal/zk/watch/pool.go",
		edits: []edit{
			{"return stat.Pzxid", "return stat.Mzxid"},
		},
		tests: "./internal/zk/watch -run ^TestVerify_FindsChangeWhoseEventIsLost$",
	},
	{
		name: "watch/verify/once", breaks: "watches are verified in one round only",
		file: "internal/zk/watch/pool.go",
		edits: []edit{
			{"for ctx.Err() == nil {", "for range 1 {"},
		},
		tests: "./internal/zk/watch -run ^TestVerify_SendsFewRequestsPerHour$",
	},
	{
		name: "watch/verify/step", breaks: "the watches of a connection are verified as fast as there are many",
		file: "internal/zk/watch/pool.go",
		edits: []edit{
			{"max(round/time.Duration(len(paths)), minStep)", "round/time.Duration(len(paths))"},
		},
		tests: "./internal/zk/watch -run ^TestVerify_LimitsRateForManyZnodes$",
	},
	{
		name: "watch/lost/reader", breaks: "a reader does not notice that its watch was lost",
		file: "internal/zk/watch/reader.go",
		edits: []edit{
			{"case r.watch.Fired():", "case false:"},
		},
		tests: "./internal/zk/watch -run ^TestRecipes_NoticeLostWatches$",
	},
	{
		name: "watch/lost/children", breaks: "a reader of children does not notice that watches were lost",
		file: "internal/zk/recipe/children.go",
		edits: []edit{
			{"case <-r.sub.Changed(): // the channel of a watch that was lost receives nothing\n", "case <-r.sub.Changed():\n\t\t\tcontinue\n"},
		},
		tests: "./internal/zk/watch -run ^TestRecipes_NoticeLostWatches$",
	},
	{
		name: "watch/lost/contender", breaks: "a contender does not notice that the watches on the candidates before it were lost",
		file: "internal/zk/queue/inputs.go",
		edits: []edit{
			{"if d.watches[slot].watch.Fired() {", "if d.kind(slot) != contender.OtherWatch && d.watches[slot].watch.Fired() {"},
		},
		tests: "./internal/zk/watch -run ^TestRecipes_NoticeLostWatches$",
	},
	{
		name: "watch/lost/own", breaks: "a candidate does not notice that the watch on its znode was lost",
		file: "internal/zk/queue/inputs.go",
		edits: []edit{
			{"if d.watches[slot].watch.Fired() {", "if slot != ownSlot && d.watches[slot].watch.Fired() {"},
		},
		tests: "./internal/zk/watch -run ^TestRecipes_NoticeLostWatches$",
	},
	{
		name: "watch/lost/keeper", breaks: "a member does not notice that the watch on its znode was lost",
		file: "internal/zk/ephemeral/keeper.go",
		edits: []edit{
			{"if own.Fired() {", "if false {"},
		},
		tests: "./internal/zk/watch -run ^TestRecipes_NoticeLostWatches$",
	},
	{
		name: "watch/lost/cache", breaks: "a cache does not notice that watches were lost",
		file: "recipes/cache/updater.go",
		edits: []edit{
			{"			u.watches.poll()\n", ""},
		},
		tests: "./internal/zk/watch -run ^TestRecipes_NoticeLostWatches$",
	},
}
