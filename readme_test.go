package leaderelection_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCodeOfDocuments shows that every block of Go code in these documents is part of a file
// that is compiled and tested.
func TestCodeOfDocuments(t *testing.T) {
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	for document, files := range map[string][]string{
		"README.md":               {"readme_test.go"},
		"docs/getting-started.md": {"examples/gettingstarted/main.go", "examples/gettingstarted/main_test.go"},
	} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		var tested strings.Builder
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			tested.Write(source)
		}
		blocks := block.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks, document)
		for _, b := range blocks {
			assert.Contains(t, tested.String(), "\n"+b[1], "a block of %s is not in %v", document, files)
		}
	}
}

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
	return elector.Lead(ctx, candidate, report) // report(ctx, leadership) runs while this replica leads
}

// reports receives the token of each leadership of runReport.
var reports = make(chan int64)

func report(ctx context.Context, l *leaderelection.Leadership) error {
	reports <- l.Token()
	<-ctx.Done()
	return nil
}

func TestReadmeLead(t *testing.T) {
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

func TestReadmeLoop(t *testing.T) {
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
