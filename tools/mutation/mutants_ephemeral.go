package main

// ephemeralMutants break rules of packages ephemeral and children.
var ephemeralMutants = []mutant{
	{
		name: "ephemeral/other-session", breaks: "Close waits for the znode of another client",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"return c.sessions[stat.EphemeralOwner]", "return stat.EphemeralOwner != 0"},
		},
		tests: "./recipes/discovery -run ^TestClose_DoesNotRepeatDeleteAfterSessionExpiry$",
	},
	{
		name: "ephemeral/earlier-session", breaks: "a znode of an earlier session is adopted",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"!own || !c.static && stat.EphemeralOwner != c.setup.Conn.SessionID(); c.occupied {", "!own; c.occupied {"},
		},
		tests: "./recipes/discovery -run ^TestRegistration_WaitsForExpiryOfEarlierSession$",
	},
	{
		name: "ephemeral/delete-earlier-session", breaks: "Close deletes a znode of an earlier session",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"case !c.static && stat.EphemeralOwner != c.setup.Conn.SessionID():\n\t\t\t// The servers", "case false:\n\t\t\t// The servers"},
		},
		tests: "./recipes/discovery -run ^TestClose_WaitsForExpiryOfEarlierSession$",
	},
	{
		name: "ephemeral/next-session", breaks: "a create that is applied in the next session counts as another client's",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"\t})\n\tc.addSession()\n\tc.mayExist", "\t})\n\tc.mayExist"},
		},
		tests: "./internal/zk/ephemeral -run ^TestKeeper_AcceptsZnodeCreatedInNextSession$",
	},
	{
		name: "ephemeral/claim", breaks: "two users of a connection create at one path",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"if released := paths.Entries[c.path]; released != nil {", "if released := paths.Entries[c.path]; false {"},
		},
		tests: "./recipes/group -run ^TestPersistent_LeavesZnodeOfSameConnectionAlone$",
	},
	{
		name: "ephemeral/in-flight", breaks: "Close does not wait for a create in flight",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"c.mayExist = c.mayExist || err == nil || c.inFlight != nil || connection.Transient(err)", "c.mayExist = c.mayExist || err == nil || connection.Transient(err)"},
		},
		tests: "./internal/zk/ephemeral -run ^TestKeeper_CloseWaitsForCreateInFlight$",
	},
	{
		name: "ephemeral/write-session", breaks: "a write that waits for a connection is sent in the next session",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{"case state.Up && !c.static && state.Session != c.owner:\n\t\t\treturn connection.ErrSessionExpired\n\t\tcase state.Up:", "case true:"},
		},
		tests: "./recipes/group -run ^TestSet_DoesNotOverwriteZnodeOfOtherClient$",
	},
	{
		name: "ephemeral/content", breaks: "data that was replaced while the reply to a create was lost is not written",
		file: "internal/zk/ephemeral/keeper.go",
		edits: []edit{
			{"\tif sent.IsZero() {\n\t\tnumber = 0\n\t}\n", "\tif sent.IsZero() {\n\t\t_, number = k.wantedData()\n\t}\n"},
		},
		tests: "./recipes/discovery -run ^TestUpdate_ReplacesContentOfCreateInFlight$",
	},
	{
		name: "children/reconnect", breaks: "children are not read again after the connection has broken",
		file: "internal/zk/recipe/children.go",
		edits: []edit{
			{"all := r.reset || r.epoch != 0 && r.epoch != epoch", "all := r.reset"},
		},
		tests: "./recipes/group -run ^TestWatch_DeliversChangesMadeWhileDisconnected$",
	},
}
