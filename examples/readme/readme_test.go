// Package readme_test contains functions that README.md and docs/elections.md show, and their tests.
package readme_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runReport(ctx context.Context, servers []string) error {
	conn, _, err := zkdial.Connect(servers, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	candidate, err := leaderelection.NewElection(conn, "/jobs/report",
		leaderelection.WithCreateNode(), leaderelection.WithRejoin())
	if err != nil {
		return err
	}
	return elector.Lead(ctx, candidate, report) // report runs while this replica leads
}

// reports receives the token of each leadership of runReport.
var reports = make(chan int64)

func report(ctx context.Context, l *leaderelection.Leadership) error {
	reports <- l.Token()
	<-ctx.Done()
	return nil
}

// TestReadme_FunctionLeadsUntilStopped checks that the function in README.md leads until its context is done,
// and leads again with a greater token.
func TestReadme_FunctionLeadsUntilStopped(t *testing.T) {
	srv := zktest.Start(t)
	token := int64(0)
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- runReport(ctx, []string{srv.Addr()}) }()
		next := <-reports
		assert.Greater(t, next, token)
		token = next
		stop()
		require.NoError(t, <-ended)
	}
}

func compete(candidate *leaderelection.Election, stop <-chan struct{}) error {
	go candidate.ElectLeader()
	defer candidate.Resign()
	patience := time.After(100 * time.Second) // to become the leader
	for {
		select {
		case status, ok := <-candidate.Status():
			switch {
			case !ok:
				return nil // resigned
			case status.Err != nil:
				return status.Err // the candidacy is over
			case status.Role == leaderelection.Leader:
				patience = nil             // a leader receives no status while all is well
				go work(status.Leadership) // until its Done channel is closed
			}
		case <-patience:
			return errNotElected
		case <-stop:
			return nil
		}
	}
}

var errNotElected = errors.New("not elected within 100 s")

func work(l *leaderelection.Leadership) { <-l.Done() }

// TestReadme_HealthyLeaderContinues checks that a healthy leader of the loop in docs/elections.md does not end.
func TestReadme_HealthyLeaderContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		start := func(stop <-chan struct{}) <-chan error {
			candidate, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- compete(candidate, stop) }()
			synctest.Wait()
			return ended
		}
		stop := make(chan struct{})
		first, second := start(stop), start(stop)

		begin := time.Now()
		require.ErrorIs(t, <-second, errNotElected)
		assert.Equal(t, 100*time.Second, time.Since(begin))
		time.Sleep(time.Hour)
		select {
		case err := <-first:
			t.Fatalf("a healthy leader has ended: %v", err)
		default:
		}
		close(stop)
		require.NoError(t, <-first)

		third := start(nil)
		require.NoError(t, leaderelection.DeleteElection(conn, "/election"))
		require.ErrorIs(t, <-third, leaderelection.ErrElectionOver)
	})
}
