package leaderelection_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
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

// TestCodeOfDocuments fails if a block of Go code in these documents is not part of a file that is
// compiled and tested, or a block of a configuration is not part of a file that is tested.
func TestCodeOfDocuments(t *testing.T) {
	block := regexp.MustCompile("(?s)```(?:go|yaml|ini)\n(.*?)```")
	for document, files := range map[string][]string{
		"README.md":               {"readme_test.go"},
		"docs/getting-started.md": {"examples/gettingstarted/main.go", "examples/gettingstarted/main_test.go"},
		"docs/tasks/config.md":    {"examples/tasks/config/main.go"},
		"docs/tasks/database.md":  {"examples/tasks/database/main.go"},
		"docs/tasks/discovery.md": {"examples/tasks/discovery/main.go"},
		"docs/tasks/job.md":       {"examples/tasks/job/main.go"},
		"docs/tasks/leader.md": {
			"examples/tasks/leader/main.go", "examples/tasks/leader/deployment.yaml", "examples/tasks/leader/report.service",
		},
		"docs/tasks/lock.md":      {"examples/tasks/lock/main.go"},
		"docs/tasks/observe.md":   {"examples/tasks/observe/main.go", "examples/tasks/metrics/main.go"},
		"docs/tasks/workqueue.md": {"examples/tasks/workqueue/main.go"},
	} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		var tested strings.Builder
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			tested.WriteByte('\n')
			tested.Write(source)
		}
		blocks := block.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks, document)
		for _, b := range blocks {
			assert.Contains(t, tested.String(), "\n"+b[1], "a block of %s is not in %v", document, files)
		}
	}
}

// TestLinksOfDocuments fails if a link between documents leads to a file or heading that does not
// exist.
func TestLinksOfDocuments(t *testing.T) {
	var (
		code    = regexp.MustCompile("(?ms)^```.*?^```|^    .*?$")
		heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
		link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
		dropped = regexp.MustCompile(`\]\([^)]*\)|[^\p{L}\p{N}_ -]`) // from a heading, in its anchor
	)
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("not a checkout:", err)
	}
	for document := range strings.FieldsSeq(string(out)) {
		source, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(string(source), ""), -1) {
			target, anchor := path.Join(path.Dir(document), l[1]), l[2]
			if strings.HasPrefix(l[1], "http") {
				continue
			}
			if l[1] == "" {
				target = document
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s links %s", document, l[0]) || anchor == "" {
				continue
			}
			text, err := os.ReadFile(target)
			require.NoError(t, err)
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
				name := dropped.ReplaceAllString(strings.ToLower(h[1]), "")
				anchors = append(anchors, strings.ReplaceAll(name, " ", "-"))
			}
			assert.Contains(t, anchors, anchor, "%s links %s", document, l[0])
		}
	}
}

// TestTestsOfDocuments fails if a document names a test that does not exist.
func TestTestsOfDocuments(t *testing.T) {
	out, err := exec.Command("git", "grep", "-hoE", "func Test[A-Z][A-Za-z0-9_]*", "--", "*_test.go").Output()
	if err != nil {
		t.Skip("not a checkout:", err)
	}
	tests := strings.Fields(string(out))
	out, err = exec.Command("git", "grep", "-oE", "`Test[A-Z][A-Za-z0-9_]*`", "--", "*.md").Output()
	require.NoError(t, err)
	for named := range strings.FieldsSeq(string(out)) {
		_, test, _ := strings.Cut(named, ":")
		assert.True(t, slices.Contains(tests, strings.Trim(test, "`")), named)
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
	return elector.Lead(ctx, candidate, report) // report runs while this replica leads
}

// reports receives the token of each leadership of runReport.
var reports = make(chan int64)

func report(ctx context.Context, l *leaderelection.Leadership) error {
	reports <- l.Token()
	<-ctx.Done()
	return nil
}

// TestReadmeLead fails if the first program of README.md does not lead, or does not end.
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

// TestReadmeLoop fails if a healthy leader of the loop in README.md ends.
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
