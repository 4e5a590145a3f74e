package main

// cacheMutants break rules of caches.
var cacheMutants = []mutant{
	{
		name: "recipe/rC1", breaks: "a reply with an older mzxid is applied",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"case z.Stat.Czxid < old.Stat.Czxid || z.Stat.Mzxid < old.Stat.Mzxid:", "case z.Stat.Czxid < old.Stat.Czxid:"},
		},
		tests: "./recipes/cache -run ^TestUpdater_DropsRepliesOlderThanTree$",
	},
	{
		name: "recipe/cache-filter", breaks: "znodes that the program excludes are cached",
		file: "recipes/cache/updater.go",
		edits: []edit{
			{"				u.filterChildren(f)\n", "				_ = f\n"},
		},
		tests: "./recipes/cache -run ^TestWithFilter_OmitsExcludedZnodes$",
	},
	{
		name: "recipe/cache-filter-shared", breaks: "a filter removes znodes from other caches on the connection",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"slices.DeleteFunc(slices.Clone(f.children), ", "slices.DeleteFunc(f.children, "},
		},
		tests: "./recipes/cache -run ^TestWithFilter_DoesNotAffectOtherCaches$",
	},
	{
		name: "recipe/typed-reject", breaks: "an item that cannot be decoded is delivered again and again",
		file: "recipes/queue/typed.go",
		edits: []edit{
			{"return Reject(err)", "return err"},
		},
		tests: "./recipes/queue -run ^TestTyped_DecodesValues$",
	},
	{
		name: "recipe/typed-format", breaks: "a value that cannot be decoded is the zero value, without an error",
		file: "internal/zk/recipe/value.go",
		edits: []edit{
			{"		err = fmt.Errorf(\"%w: %w\", ErrFormat, err)\n", "		err = nil\n"},
		},
		tests: "./recipes/cache ./recipes/group ./recipes/discovery -run ^TestTyped_DecodesValues$",
	},
	{
		name: "recipe/typed-unreadable", breaks: "a member whose data could not be read has the zero value, without that error",
		file: "recipes/group/typed.go",
		edits: []edit{
			{"	case m.Err != nil:\n		err = m.Err\n", ""},
		},
		tests: "./recipes/group -run ^TestTyped_DecodesValues$",
	},
	{
		name: "recipe/rC2", breaks: "a list removes children that were created after it",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"if c.listedAt != now && (c.value == nil || c.value.Stat.Czxid <= f.stat.Pzxid) {", "if c.listedAt != now {"},
		},
		tests: "./recipes/cache -run ^TestUpdater_KeepsNewerChildAfterOlderList$",
	},
	{
		name: "recipe/first-of-session", breaks: "a reply of the next session is compared with zxids of the earlier one",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"	case first:\n		u.replaceValue(n, z)\n", ""},
		},
		tests: "./recipes/cache -run ^TestCache_ReplacesOldZnodesAfterDataLoss$",
	},
	{
		name: "recipe/rC3", breaks: "the server of a new session is assumed to be up to date",
		file: "recipes/cache/updater.go",
		edits: []edit{
			{"broken, u.needsSync, u.sessionEpoch = true, true, u.epoch+1", "broken, u.sessionEpoch = true, u.epoch+1"},
		},
		tests: "./recipes/cache -run ^TestCache_DetectsNewSessionWithoutEvent$",
	},
	{
		name: "recipe/rC4", breaks: "every first reply is applied immediately",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"return p == nil || u.isCurrent(&p.data) || u.isCurrent(&p.list)", `_ = p
	return true`},
		},
		tests: "./recipes/cache -run ^TestUpdater_DefersChildUntilParentIsRead$",
	},
	{
		name: "recipe/cache-repeat", breaks: "a znode that servers refuse to read is read again only after a change",
		file: "recipes/cache/fetch.go",
		edits: []edit{
			{"if err != nil && err != recipes.ErrTooLarge {", "if false && err != recipes.ErrTooLarge {"},
		},
		tests: "./recipes/cache -run ^TestCache_UpdatesTreeBesideUnreadableZnodes$/^children:_a_final_code$",
	},
	{
		name: "recipe/rC5", breaks: "a deletion is applied while a reply is in flight",
		file: "recipes/cache/updater.go",
		edits: []edit{
			{"} else if !p.inFlight {", "} else {"},
		},
		tests: "./recipes/cache -run ^TestUpdater_KeepsNewChildAfterLateDeletion$",
	},
	{
		name: "recipe/rC6", breaks: "an absence is applied after a later list",
		file: "recipes/cache/apply.go",
		edits: []edit{
			{"if n.parent != nil && n.listedAt > f.sent {", "if false {"},
		},
		tests: "./recipes/cache -run ^TestUpdater_KeepsListedChildAfterOlderReply$",
	},
}
