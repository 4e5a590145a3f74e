package main

// accessMutants break the checks of the ACLs of znodes that other clients have created.
var accessMutants = []mutant{
	{
		name: "access/others", breaks: "nothing that the ACL of a znode permits to others is found",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`changePermissions &^ granted`, `0`},
		},
		tests: "./internal/zk/connection -run ^TestOthers_ListsPermissionsOfOtherClients$",
	},
	{
		name: "access/admin", breaks: "the permission to change the ACL does not count",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`zk.PermWrite | zk.PermAdmin`, `zk.PermWrite`},
		},
		tests: "./internal/zk/connection -run ^TestOthers_ListsPermissionsOfOtherClients$",
	},
	{
		name: "access/auth", breaks: "with the scheme auth, the permissions of all clients count as own",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`return a.Scheme != "world" && a.Scheme != "ip"`, `return true`},
		},
		tests: "./internal/zk/connection -run ^TestOthers_ListsPermissionsOfOtherClients$",
	},
	{
		name: "access/user", breaks: "the permissions of another user of the same scheme count as own",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`return own.ID == a.ID || own.Scheme`, `return own.Scheme`},
		},
		tests: "./internal/zk/connection -run ^TestOthers_ListsPermissionsOfOtherClients$",
	},
	{
		name: "access/strict", breaks: "WithStrictACL only logs a warning",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`if o.StrictACL && len`, `if false && len`},
		},
		tests: ". -run ^TestWithStrictACL_RejectsMorePermissiveNode$",
	},
	{
		name: "access/strict/unreadable", breaks: "WithStrictACL accepts a znode whose ACL cannot be read",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`err == zk.ErrNoAuth && o.StrictACL:`, `false:`},
		},
		tests: "./recipes -run ^TestWithACL_ReportsUnreadableACL$",
	},
	{
		name: "access/strict/option", breaks: "WithStrictACL without WithACL is accepted",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`case o.StrictACL && !Protects(o.ACL):`, `case false:`},
		},
		tests: "./internal/zk/connection -run ^TestOptions_CheckRejectsStrictOpenACL$",
	},
	{
		name: "access/cost", breaks: "participants without WithACL read the ACL",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`	if !Protects(o.ACL) {
		return true
	}
`, ``},
		},
		tests: ". -run ^TestRoundTrips_WithACLReadsNodeACLOnce$",
	},
	{
		name: "access/once", breaks: "each attempt reads the ACL",
		file: "internal/zk/connection/znode.go",
		edits: []edit{
			{`(czxid == 0 || czxid == known)`, `czxid != 0 && czxid == known`},
		},
		tests: ". -run ^TestRoundTrips_WithACLReadsNodeACLOnce$",
	},
	{
		name: "access/create", breaks: "a contender creates its znode before it reads the ACL",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{`cfg.CheckZnode(cfg.Dir, 0); err != nil`, `cfg.CheckZnode(cfg.Dir, 0); false && err != nil`},
		},
		tests: ". -run ^TestWithStrictACL_RejectsMorePermissiveNode$",
	},
	{
		name: "access/again", breaks: "the ACL of a node that was created again is not read",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{`cfg.CheckZnode(cfg.Dir, found.Stat.Czxid)`, `nil`},
		},
		tests: ". -run ^TestWithStrictACL_RejectsMorePermissiveNode$",
	},
	{
		name: "access/again/stamp", breaks: "the ACL of the node of a lock that was created again is not read",
		file: "internal/zk/queue/requests.go",
		edits: []edit{
			{`res.reply.Alone && cfg.CheckedZnode(cfg.Dir, stat.Czxid)`, `res.reply.Alone`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^mutex$",
	},
	{
		name: "access/member", breaks: "members of groups and instances of services do not read the ACL",
		file: "internal/zk/ephemeral/claim.go",
		edits: []edit{
			{`c.setup.CheckDir(ctx, path.Dir(c.path), c.makeParent); err != nil`, `error(nil); err != nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^group$",
	},
	{
		name: "access/created", breaks: "the ACL of a znode that another client creates after the check is not read",
		file: "internal/zk/recipe/recipe.go",
		edits: []edit{
			{`		if err != nil {
			return err
		}
	}
	return nil
`, `		return err
	}
	return nil
`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsZnodeCreatedAfterCheck$",
	},
	{
		name: "access/put", breaks: "items are put into a directory that others may change",
		file: "recipes/queue/queue.go",
		edits: []edit{
			{`q.setup.CheckDir(ctx, q.path, q.makeItems); err != nil`, `error(nil); err != nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^queue,_put$",
	},
	{
		name: "access/put/record", breaks: "the record of a producer is created among claims that others may change",
		file: "recipes/queue/queue.go",
		edits: []edit{
			{`return q.setup.CheckDir(ctx, q.cfg.claims, q.makeClaims)`, `return nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^queue,_claims$",
	},
	{
		name: "access/put/request", breaks: "items are put by other transactions into a directory that others may change",
		file: "recipes/queue/put.go",
		edits: []edit{
			{`	if err := q.checkDirs(ctx); err != nil {
		return nil, err
	}
`, ``},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^queue,_request$",
	},
	{
		name: "access/dead", breaks: "items are moved to dead letters that others may change",
		file: "recipes/queue/completion.go",
		edits: []edit{
			{`if c.toDeadLetters {
		if err`, `if false {
		if err`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^queue,_dead_letter$",
	},
	{
		name: "access/dead/delete", breaks: "dead letters that others may change are put back or deleted",
		file: "recipes/queue/deadletter.go",
		edits: []edit{
			{`q.setup.CheckAccess(ctx, q.cfg.dead); err != nil`, `error(nil); err != nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^queue,_discard$",
	},
	{
		name: "access/take", breaks: "items are taken from a directory that others may change",
		file: "recipes/queue/listing.go",
		edits: []edit{
			{`d.check(ctx, d.path); err != nil`, `error(nil); err != nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^queue,_take$",
	},
	{
		name: "access/counter", breaks: "a counter is written that others may change",
		file: "recipes/value/write.go",
		edits: []edit{
			{`v.node.CheckAccess(ctx, v.node.Path); err != nil`, `error(nil); err != nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^counter$",
	},
	{
		name: "access/barrier", breaks: "a barrier that others may remove counts as set",
		file: "recipes/barrier/barrier.go",
		edits: []edit{
			{`err = b.setup.CheckAccess(ctx, b.setup.Path)`, `err = nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^barrier$",
	},
	{
		name: "access/limit", breaks: "the limit of a semaphore that others may change is set",
		file: "recipes/lock/semaphore_limit.go",
		edits: []edit{
			{`err = s.setup.CheckAccess(ctx, s.setup.Path)`, `err = nil`},
		},
		tests: "./recipes -run ^TestWithStrictACL_RejectsNodesOpenToOthers$/^semaphore,_limit$",
	},
	{
		name: "access/elector", breaks: "elector does not pass --zookeeper-strict-acl on",
		file: "cmd/elector/zookeeper.go",
		edits: []edit{
			{`if z.settings.zookeeper.strictACL {`, `if false {`},
		},
		tests: "./cmd/elector -run ^TestZooKeeper_RejectsElectionWithOpenACL$",
	},
}
