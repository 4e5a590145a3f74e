package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

var lossCandidates = flag.Int("loss.candidates", 600, "`number` of candidates in the simulation of the loss of a server")

// lossGroup is the number of candidates in each election, and the number on each connection.
const lossGroup = 100

// TestServerLoss_KeepsLeadersOfOpenSessions simulates the loss of one of three servers in fake time, and prints the
// requests that the other servers then receive. The test requires that no leader whose session continues is replaced,
// that each election has one leader afterwards, and that an affected candidate sends no more requests than it needs
// to set its watches again.
func TestServerLoss_KeepsLeadersOfOpenSessions(t *testing.T) {
	for _, leader := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader=%v", leader), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulateLoss(t, *lossCandidates, leader) })
		})
	}
}

// fleet counts the changes of role that all candidates report.
type fleet struct {
	leaders, suspended, suspensions, terms, failures atomic.Int64
	running                                          sync.WaitGroup
}

// run runs the candidacy of e, and counts the changes of its role.
func (f *fleet) run(e *leaderelection.Election) {
	f.running.Go(func() { e.ElectLeader() }) // the result is ignored, because the final status contains the error
	f.running.Go(func() {
		var role leaderelection.Role
		count := func(role leaderelection.Role, by int64) {
			switch role {
			case leaderelection.Leader:
				f.leaders.Add(by)
			case leaderelection.Suspended:
				f.suspended.Add(by)
			}
		}
		var last uint64 // the token of the last leadership
		for status := range e.Status() {
			if status.Err != nil {
				f.failures.Add(1)
			}
			if status.Role == role {
				continue
			}
			count(role, -1)
			role = status.Role
			count(role, 1)
			switch {
			case role == leaderelection.Suspended:
				f.suspensions.Add(1)
			case role == leaderelection.Leader && uint64(status.Leadership.Token()) != last:
				last = uint64(status.Leadership.Token())
				f.terms.Add(1)
			}
		}
	})
}

func simulateLoss(t *testing.T, candidates int, leader bool) {
	groups := candidates / lossGroup
	e := zktest.StartEnsemble(t, 3, zktest.WithLogLimit(40*candidates+100000))
	var conns []*zk.Conn
	for i := range groups {
		conns = append(conns, bubble.ConnectFrom(t, e, i%e.Len(), sessionTimeout))
	}
	f := &fleet{}
	var elections []*leaderelection.Election
	for i := range candidates {
		// The candidates of an election use different connections, if there are enough connections.
		path := fmt.Sprintf("/election-%05d", i%groups)
		election, err := leaderelection.NewElection(conns[(i/groups+i)%groups], path,
			leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(sessionTimeout))
		require.NoError(t, err)
		f.run(election)
		elections = append(elections, election)
	}
	bubble.Advance(10 * sessionTimeout) // wait until the candidates next to the leader have stopped renewing leases
	require.EqualValues(t, groups, f.leaders.Load())

	lost := e.Server(0)
	for i := 0; (lost == e.Leader()) != leader; i++ {
		lost = e.Server(i)
	}
	affected := 0
	for _, s := range lost.Sessions() {
		if leader || s.Server == lost.ID() {
			affected++
		}
	}
	lost.ResetLog()
	at := time.Now()
	lost.Stop()
	bubble.Advance(3 * sessionTimeout)
	log := lost.Log()

	t.Logf("%d candidates of %d elections, %d connections, of which %d have lost their server; %d leaders were suspended, %d terms began in all",
		candidates, groups, groups, affected, f.suspensions.Load(), f.terms.Load())
	t.Logf("\n%s", tabulateRequests(log, at))
	require.EqualValues(t, groups, f.leaders.Load(), "leaders")
	require.EqualValues(t, groups, f.terms.Load(), "no leader was replaced")
	require.Zero(t, f.failures.Load())
	require.Zero(t, f.suspended.Load())
	reads := log.Requests().Filter(func(x zktest.Entry) bool { return !isTransaction(x.Op) })
	require.Less(t, len(reads), (4*lossGroup+20)*affected, "requests grow with the number of affected candidates")

	// Resign before the connections are closed: if a connection is closed while it sends requests, the client library
	// can block forever.
	for _, election := range slices.Backward(elections) {
		require.NoError(t, election.Resign())
	}
	f.running.Wait()
	for _, c := range conns {
		c.Close()
	}
}

// tabulateRequests returns a table of the requests after the time at, with the number of each kind per second.
func tabulateRequests(log zktest.Log, at time.Time) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "second\tconnects\tsets of watches\treads\tlistings\ttransactions\tevents\t")
	quiet := 0
	for second := 0; len(log) > 0 && quiet < 5; second++ {
		var connects, sets, reads, listings, transactions, events int
		for len(log) > 0 && log[0].Time.Sub(at) < time.Duration(second+1)*time.Second {
			switch op := log[0].Op; {
			case op == zktest.OpConnect:
				connects++
			case op == zktest.OpSetWatches:
				sets++
			case op == zktest.OpNotification:
				events++
			case (op == zktest.OpGetChildren || op == zktest.OpGetChildren2) && !strings.Contains(log[0].Path, "/_c_"):
				listings++ // requests of this kind for a candidate's znode only set a watch on it
			case isTransaction(op):
				transactions++
			case op != zktest.OpPing:
				reads++
			}
			log = log[1:]
		}
		if quiet++; connects+sets+reads+listings+events > 0 {
			quiet = 0
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", second, connects, sets, reads, listings, transactions, events)
	}
	table.Flush()
	return text.String()
}
