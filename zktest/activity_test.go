package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// The settings of the tests below, with which the time between two reports of a follower has the
// greatest effect. reportPing is the time from the start of the ensemble to the ping between servers
// before the tenth tick.
const (
	reportTick    = 2 * time.Second
	reportTimeout = 4 * time.Second
	reportPing    = 10*reportTick - reportTick/64
)

// sessionLife lets a client of server 0 send packets until a millisecond before the call of cut,
// which is d after a ping between servers. It returns how long after this ping the session expires.
func sessionLife(t *testing.T, servers int, d time.Duration, cut func(s *zktest.Server, session int64)) time.Duration {
	begin := time.Now()
	ens := zktest.StartEnsemble(t, servers, zktest.WithTick(reportTick), zktest.WithSessionTimeouts(reportTimeout, reportTimeout))
	conn, _, err := ens.Server(0).Connect(reportTimeout)
	require.NoError(t, err)
	at := reportPing + d
	for {
		_, err := conn.Sync("/")
		require.NoError(t, err)
		left := at - time.Since(begin) - time.Millisecond
		if left <= 0 {
			break
		}
		time.Sleep(min(20*time.Millisecond, left))
	}
	time.Sleep(time.Millisecond)
	id := conn.SessionID()
	cut(ens.Server(0), id)
	time.Sleep(3 * reportTimeout)
	synctest.Wait()
	for _, e := range ens.Leader().Log() {
		if e.Op == zktest.OpCloseSession && e.Session == id {
			return e.Time.Sub(begin) - reportPing
		}
	}
	require.Fail(t, "the session has not expired")
	return 0
}

// TestFollower_ReportsActivityOnlyWithPings checks that zktest expires a session at the same time as ZooKeeper. A
// follower reports the packets of its clients to the leader only in its answer to a ping, twice per tick. If the
// follower is cut off before the answer, the last packets do not count, and a session with the shortest timeout
// expires up to a quarter of its timeout early.
func TestFollower_ReportsActivityOnlyWithPings(t *testing.T) {
	const tick, toTick = reportTick, reportTick / 64
	for name, c := range map[string]struct {
		servers int
		cut     func(s *zktest.Server, session int64)
	}{
		"follower cut off":                    {3, func(s *zktest.Server, _ int64) { s.Partition() }},
		"follower paused":                     {3, func(s *zktest.Server, _ int64) { s.Pause() }},
		"follower stopped":                    {3, func(s *zktest.Server, _ int64) { s.Stop() }},
		"client of a follower cut off":        {3, func(s *zktest.Server, id int64) { s.Partition(id) }},
		"single server cut off":               {1, func(s *zktest.Server, _ int64) { s.Partition() }},
		"client of a single server cut off":   {1, func(s *zktest.Server, id int64) { s.Partition(id) }},
		"follower cut off, connection closed": {3, func(s *zktest.Server, _ int64) { s.Partition(); s.DropConnections(); s.Refuse(true) }},
		"client cut off, connection closed":   {1, func(s *zktest.Server, id int64) { s.Partition(id); s.DropConnections(id); s.Refuse(true) }},
	} {
		for _, d := range []struct{ cut, life time.Duration }{
			{2 * time.Millisecond, reportTimeout + toTick}, // the previous ping reports the packet
			{tick/2 - 1, reportTimeout + toTick},           // packets after the previous ping are not reported
			{tick / 2, reportTimeout + tick + toTick},      // the next ping reports the packet
			{tick - 1, reportTimeout + tick + toTick},
			{tick, reportTimeout + tick + toTick}, // the ping right before a tick reports the packet
			{tick + tick/2, reportTimeout + 2*tick + toTick},
		} {
			t.Run(name+" after "+d.cut.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					require.Equal(t, d.life, sessionLife(t, c.servers, d.cut, c.cut))
				})
			})
		}
	}
}

// TestFollower_ReportsActivityAfterFault checks that a follower reports the activity of its clients after a fault
// during which it could not report.
func TestFollower_ReportsActivityAfterFault(t *testing.T) {
	const tick, toTick = reportTick, reportTick / 64
	for name, servers := range map[string]int{"follower": 3, "single server": 1} {
		for fault, cut := range map[string][2]func(*zktest.Server){
			"cut off": {func(s *zktest.Server) { s.Partition() }, func(s *zktest.Server) { s.Heal() }},
			"paused":  {(*zktest.Server).Pause, (*zktest.Server).Resume},
		} {
			t.Run(name+" "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					life := sessionLife(t, servers, tick/4, func(s *zktest.Server, _ int64) {
						s.DropConnections()
						s.Refuse(true)
						cut[0](s)
						time.Sleep(tick)
						cut[1](s)
					})
					want := reportTimeout + 2*tick + toTick
					if servers == 1 && fault == "paused" {
						want -= tick // a standalone server counted the packet immediately
					}
					require.Equal(t, want, life)
				})
			})
		}
	}
}

// TestLeader_CountsPacketsOfItsClientsImmediately checks that the leader, or a standalone server, extends a
// session as soon as it receives a packet of its own client.
func TestLeader_CountsPacketsOfItsClientsImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := sessionLife(t, 1, reportTick/2-time.Millisecond, func(s *zktest.Server, session int64) {
			s.DropConnections(session)
			s.Refuse(true)
		})
		require.Equal(t, reportTimeout+reportTick+reportTick/64, life)
	})
}
