package main

// grantMutants break rules of grants and guarded transactions.
var grantMutants = []mutant{
	{
		name: "grant/Q1", breaks: "Err does not read the clock",
		file: "internal/zk/connection/grant.go",
		edits: []edit{
			{"if d := g.Deadline(); !d.IsZero() && limit.Expired(d, now) {", "if d := g.Deadline(); false && limit.Expired(d, now) {"},
		},
		tests: "./internal/zk/connection -run ^TestGrant_ErrDetectsExpiryWithoutTimer$",
	},
	{
		name: "grant/Q2", breaks: "deadline moves after the end",
		file: "internal/zk/connection/grant.go",
		edits: []edit{
			{`	if g.ctx.Err() == nil {
		if d := g.deadline(); !d.IsZero() {`, `	{
		if d := g.deadline(); !d.IsZero() {`},
		},
		tests: "./internal/zk/connection -run ^TestGrant_ErrDetectsExpiryWithoutTimer$",
	},
	{
		name: "grant/U1", breaks: "the check of the grant's znode is the last operation",
		file: "internal/zk/txn/guarded.go",
		edits: []edit{
			{`	for _, path := range own {
		guarded = append(guarded, &zk.CheckVersionRequest{Path: path, Version: -1})
	}
	guarded = append(guarded, ops...)`, `	guarded = append(guarded, ops...)
	for _, path := range own {
		guarded = append(guarded, &zk.CheckVersionRequest{Path: path, Version: -1})
	}`},
		},
		tests: ". -run ^TestMulti_AppliesOnlyTransactionsOfLeader$",
	},
	{
		name: "grant/U2", breaks: "a lost reply is reported as an error of ZooKeeper",
		file: "internal/zk/txn/guarded.go",
		edits: []edit{
			{`	case connection.Transient(a.Err):
		return nil, fmt.Errorf("%w: %w", connection.ErrUnconfirmed, a.Err)
`, ""},
		},
		tests: ". -run ^TestElection_AppliesWriteOnceAfterLostReply$",
	},
	{
		name: "grant/size", breaks: "a transaction is sent that is larger than the servers accept",
		file: "internal/zk/txn/guarded.go",
		edits: []edit{
			{"} else if err != nil {", "} else if false {"},
		},
		tests: ". -run ^TestMulti_DoesNotSendInvalidTransaction$",
	},
	{
		name: "grant/operation", breaks: "the error of a transaction does not name the operation",
		file: "internal/zk/txn/guarded.go",
		edits: []edit{
			{"nameOperation(ops, a.Value[len(own):], a.Err)", "a.Err"},
		},
		tests: ". -run TestMulti_ErrorNames",
	},
}
