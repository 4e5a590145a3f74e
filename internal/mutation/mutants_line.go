package main

// lineMutants break rules of the order of candidates and contenders.
var lineMutants = []mutant{
	{
		name: "line/F3", breaks: "missing own znode ignored",
		file: "internal/zk/line/first.go",
		edits: []edit{
			{`		if state.Missing && p.renaming == nil {
			return p.deleted(ctx)
		}
`, ""},
		},
		tests: "./internal/traptest -run ^TestTrap27_WatchesLost$",
	},
	{
		name: "line/F4", breaks: "hint in front of Curator too",
		file: "internal/zk/line/first.go",
		edits: []edit{
			{"if follower == \"\" || !ours(follower) {", "if follower == \"\" {"},
		},
		tests: ". -run ^TestRollingUpgradeOfAHandWrittenElection$",
	},
	{
		name: "line/F5", breaks: "session change/close ignored",
		file: "internal/zk/line/first.go",
		edits: []edit{
			{`		if err := p.over(state); err != nil {
			return err
		}
		if state.Missing`, "\t\tif state.Missing"},
		},
		tests: "./internal/traptest -run ^TestProtection_EndOfSessionIsSeenByPolling$",
	},
	{
		name: "line/W1", breaks: "unproven",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"return p.verified && state.Up && state.Proven && state.Epoch == p.epoch && state.Session == p.session", "return p.verified && state.Up && state.Epoch == p.epoch && state.Session == p.session"},
		},
		equivalent: "the candidate waits for the proof before it leads, so an unproven predecessor changes nothing",
	},
	{
		name: "line/W2", breaks: "epoch ignored",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"return p.verified && state.Up && state.Proven && state.Epoch == p.epoch && state.Session == p.session", "return p.verified && state.Up && state.Proven && state.Session == p.session"},
		},
		tests: "./internal/traptest -run ^TestProtection_PlaceIsVoidAfterReconnect$",
	},
	{
		name: "line/W3", breaks: "unverified",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"return p.verified && state.Up && state.Proven && state.Epoch == p.epoch && state.Session == p.session", "return state.Up && state.Proven && state.Epoch == p.epoch && state.Session == p.session"},
		},
		tests: "./internal/traptest -run ^TestC15_DataRace$",
	},
	{
		name: "line/W6", breaks: "second does not list",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{`	case p.verified:
		return p.look(ctx)
	case p.Room`, "\tcase p.Room"},
		},
		tests: ". -run ^TestEventsOfAHandOverWithoutConnection$",
	},
	{
		name: "line/W7", breaks: "same session not asked",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"if p.predecessorSeen.owner == p.session && !p.heardFarewell(ctx) {", "if false {"},
		},
		tests: "./internal/traptest -run ^TestProtection_PredecessorOfTheSameSession$",
	},
	{
		name: "line/W8", breaks: "no recheck after reconnect",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{`	if state.Up && state.Epoch != p.epoch {
		return true, p.recheck(ctx)
	}
`, ""},
		},
		tests: ". -run ^TestEventsOfAHandOverWithoutConnection$",
	},
	{
		name: "line/K2", breaks: "absent own znode always deleted",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{`		if p.Conn.SessionID() != p.session {
			return zkerror.ErrSessionExpired
		}
		return p.deleted(ctx)`, "\t\treturn p.deleted(ctx)"},
		},
		equivalent: "a znode that is absent cannot be deleted twice",
	},
	{
		name: "line/K3", breaks: "strays not deleted",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{`		if err := p.delete(ctx, stray); err != nil {
			return err
		}
`, `		_ = stray
`},
		},
		tests: "./internal/traptest -run ^TestTrap03_OwnZnodeShowsUpLate$",
	},
	{
		name: "line/K5", breaks: "mark of the end ignored",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{`	case around.ended:
		return zkerror.ErrElectionOver
`, ""},
		},
		tests: "./internal/traptest -run ^TestC08_ErrorAtStart$",
	},
	{
		name: "line/E1", breaks: "no Sync",
		file: "internal/zk/line/enter.go",
		edits: []edit{
			{`		if _, err := p.Conn.Sync(p.Dir); err != nil {
			return listing{}, err
		}
`, ""},
		},
		tests: "./internal/traptest -run ^TestTrap03_SearchAtALaggingServer$",
	},
	{
		name: "line/E2", breaks: "any owner",
		file: "internal/zk/line/enter.go",
		edits: []edit{
			{"case p.name == \"\" && stat.EphemeralOwner == p.Conn.SessionID():", "case p.name == \"\":"},
		},
		tests: "./internal/traptest -run ^TestProtection_OnlyZnodesOfTheSessionAreAdopted$",
	},
	{
		name: "line/E4", breaks: "lost create not searched for",
		file: "internal/zk/line/enter.go",
		edits: []edit{
			{`			if err = p.again(limited, err); err == nil {
				err = p.adopt(limited)
			}`, "\t\t\terr = p.again(limited, err)"},
		},
		tests: "./internal/traptest -run ^TestC07_OrphanedCandidate$",
	},
	{
		name: "line/O2", breaks: "anybody behind is second",
		file: "internal/zk/line/order.go",
		edits: []edit{
			{`	s.isSecond = count == 1
`, `	s.isSecond = count >= 1
`},
		},
		tests: ". -run ^TestEventsHaveTheDurationOfAHandOver$",
	},
	{
		name: "line/O3", breaks: "predecessor is the first, herd",
		file: "internal/zk/line/order.go",
		edits: []edit{
			{"if s.predecessor == \"\" || distance > ahead {", "if s.predecessor == \"\" || distance < ahead {"},
		},
		tests: ". -run ^TestEventsOfAPredecessorThatWasNoLeader$",
	},
	{
		name: "line/P1", breaks: "session change does not end it",
		file: "internal/zk/line/place.go",
		edits: []edit{
			{`	case p.session != 0 && state.Session != p.session:
		return zkerror.ErrSessionExpired
`, ""},
		},
		tests: ". -run ^TestAskOneWhoRejoins$",
	},
	{
		name: "line/P2", breaks: "not told at once",
		file: "internal/zk/line/place.go",
		edits: []edit{
			{`	p.tell(State{Err: zkerror.ErrDeleted})
	if err := p.over`, "\tif err := p.over"},
		},
		tests: ". -run ^TestEventsOfAnElectionsEnd$",
	},
	{
		name: "line/rL5", breaks: "leftovers without Sync",
		file: "internal/zk/line/enter.go",
		edits: []edit{
			{`		if _, err := p.Conn.Sync(p.Dir); err != nil {
			return listing{}, err
		}
`, ""},
		},
		tests: "./recipes/lock -run ^TestTrap03_SearchAtALaggingServer$",
	},
	{
		name: "line/rL9", breaks: "never maybe",
		file: "internal/zk/line/room.go",
		edits: []edit{
			{"c.maybe = stored && before(sequence, changed) || !ours(predecessor)", "c.maybe = false && before(sequence, changed) || !ours(predecessor)"},
		},
		tests: "./recipes/lock -run ^TestSemaphoreNewcomerAfterALowerLimit$",
	},
	{
		name: "line/rL10", breaks: "tells the follower once only",
		file: "internal/zk/line/room.go",
		edits: []edit{
			{`		return struct{}{}, request.Retry(ctx, conn, func() error {
			_, err := conn.Set(own, data, -1)
			return err
		})`, `		_, err := conn.Set(own, data, -1)
		if request.Transient(err) {
			err = nil
		}
		return struct{}{}, err`},
		},
		tests: "./recipes/lock -run ^TestSemaphoreHintLost$",
	},
	{
		name: "line/rL14", breaks: "strays of own candidacy are left",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{"\tfor _, stray := range around.strays {", "\tfor _, stray := range around.strays[:0] {"},
		},
		tests: "./recipes/lock -run ^TestTrap03_SemaphoreInCompanyLeaseShowsUpLate$",
	},
	{
		name: "line/F2", breaks: "a short lapse of the lease is not reported",
		file: "internal/zk/line/first.go",
		edits: []edit{
			{"state.Lapses != lapses", "false && state.Lapses != lapses"},
		},
		tests: "./internal/zk/line -run TestShortLapse",
	},
	{
		name: "line/node-missing", breaks: "a missing node in a new session is the end of the election",
		file: "internal/zk/line/place.go",
		edits: []edit{
			{"case seen != 0 && p.Conn.SessionID() != seen:", "case false:"},
		},
		tests: "./internal/zk/line -run TestNodeIsMissing",
	},
	{
		name: "line/outlived", breaks: "the znode of a lost session stays",
		file: "internal/zk/line/leave.go",
		edits: []edit{
			{"go p.deleteOutlived()", "_ = p.deleteOutlived"},
		},
		tests: ". -run TestNewSession",
	},
	{
		name: "line/order", breaks: "two candidates with one number are not an error",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{"if around.twin != \"\" && p.Room == nil {", "if false {"},
		},
		tests: "./internal/traptest -run TestAmbiguous",
	},
	{
		name: "line/plain-owner", breaks: "persistent children count as candidates",
		file: "internal/zk/line/plain.go",
		edits: []edit{
			{"case owner == nil && strings", "case strings"},
		},
		tests: "./internal/traptest -run PlainNames",
	},
	{
		name: "line/F1", breaks: "a contender claims the grant without checking that its znode still exists",
		file: "internal/zk/line/first.go",
		edits: []edit{
			{`		select {
		case event := <-ownWatch.C():
			if err := p.ownEvent(ctx, ownWatch.Take(event)); err != nil {
				return err
			}
		default:
		}
`, ""},
		},
		tests: "./internal/traptest -run ^TestProtection_OwnEndBeforeAClaim$",
	},
	{
		name: "line/W4", breaks: "the session is not compared",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{" && state.Epoch == p.epoch && state.Session == p.session", " && state.Epoch == p.epoch"},
		},
		equivalent: "beFirst compares the session before it reports anything",
	},
	{
		name: "line/W5", breaks: "a write to the predecessor before the watch is not noticed",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"p.unsettled = (p.verified || p.Room != nil) && p.predecessorSeen.version > 0", "p.unsettled = false"},
		},
		tests: "./internal/zk/line -run ^TestPredecessorIsWrittenBeforeTheWatch$",
	},
	{
		name: "line/W5r", breaks: "the same, for those who wait for room",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"(p.verified || p.Room != nil) &&", "p.verified &&"},
		},
		tests: "./recipes/lock -run ^TestSemaphoreHintBeforeTheWatch$",
	},
	{
		name: "line/W10", breaks: "the second candidate has no lease in advance",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{`	if p.verified {
		p.prove()
	} else {
		p.rest()
	}
`, `	p.rest()
`},
		},
		tests: ". -run ^TestEventsOfAHandOver$",
	},
	{
		name: "line/rL2", breaks: "the end of the common session counts as a resignation",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{"p.predecessorSeen.owner == p.session && !p.heardFarewell(ctx)", "false && !p.heardFarewell(ctx)"},
		},
		tests: "./internal/zk/line -run ^TestPredecessorGoesWithTheSession$",
	},
	{
		name: "line/rL3", breaks: "a place is certain after a reconnect",
		file: "internal/zk/line/wait.go",
		edits: []edit{
			{" && state.Epoch == p.epoch && ", " && "},
		},
		tests: "./internal/zk/line -run ^TestReconnectMakesThePlaceUncertain$",
	},
	{
		name: "line/K1", breaks: "a znode of another session is accepted as the contender's",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{"case o.Err == nil && o.Value.Stat.EphemeralOwner == p.Conn.SessionID():", "case o.Err == nil:"},
		},
		equivalent: "its owner becomes the session of the place, which is compared with that of the connection before it leads",
	},
	{
		name: "line/K4", breaks: "another node at the path is not noticed when it is listed",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{"if l.Err == nil && p.isOther(l.Value.stat) {", "if false {"},
		},
		tests: "./internal/traptest -run ^TestTrap36_NodeGoesBeforeTheCreate$",
	},
	{
		name: "line/rL11", breaks: "the watch of a former predecessor is kept",
		file: "internal/zk/line/look.go",
		edits: []edit{
			{`		p.predecessorWatch = nil // it watched one that is gone
`, ""},
		},
		tests: "./internal/zk/line -run ^TestWatchOfAFormerPredecessor$",
	},
	{
		name: "line/E3", breaks: "the end of the sequence numbers is ignored",
		file: "internal/zk/line/enter.go",
		edits: []edit{
			{"if p.Naming.exhausted(p.name) {", "if false {"},
		},
		tests: "./internal/traptest -run ^TestTrap32_CounterComesToItsEnd$",
	},
	{
		name: "line/V1", breaks: "the answer to a create is not awaited by those who leave",
		file: "internal/zk/line/leave.go",
		edits: []edit{
			{`		answer := <-p.creating
		switch {
		case answer.Err == nil:
			p.setOwn(path.Base(answer.Value))
		case !request.Transient(answer.Err):
			p.prefixes = p.prefixes[:len(p.prefixes)-1]
		}
`, ""},
		},
		tests: "./internal/zk/line -run ^TestLeaveDuringTheCreate$",
	},
	{
		name: "line/rL6", breaks: "a create in progress is forgotten by those who leave",
		file: "internal/zk/line/leave.go",
		edits: []edit{
			{"if p.creating != nil {", "if false {"},
		},
		tests: "./internal/zk/line -run ^TestLeaveDuringTheCreate$",
	},
	{
		name: "line/V3", breaks: "the search for znodes ends with the session",
		file: "internal/zk/line/leave.go",
		edits: []edit{
			{`			p.outlive()
			continue
`, `			return nil
`},
		},
		tests: "./internal/traptest -run ^TestSearchGoesOnAfterTheSession$",
	},
	{
		name: "line/O1", breaks: "sequence numbers do not overflow",
		file: "internal/zk/line/order.go",
		edits: []edit{
			{`		if distance < 0 {
`, `		if sequence < ownSequence {
`},
		},
		tests: "./internal/zk/line -run ^TestOrderAcrossTheOverflow$",
	},
	{
		name: "line/P3", breaks: "another node at the path is not noticed after a deletion",
		file: "internal/zk/line/place.go",
		edits: []edit{
			{"case r.dir == nil, p.isOther(r.dir):", "case r.dir == nil:"},
		},
		tests: "./internal/traptest -run ^TestTrap28_CreatedAnewMeanwhile$",
	},
}
