//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// webClient is an HTTP client that requests the pages of --listen.
type webClient struct {
	t    *testing.T
	base string // the URL of the server
	http *http.Client
}

// webClient returns a client of a process that was started with --listen 127.0.0.1:0.
func (p *process) webClient() *webClient {
	p.t.Helper()
	line := p.waitForLog("msg=listening")
	_, address, _ := strings.Cut(line, "address=")
	transport := &http.Transport{}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &webClient{p.t, "http://" + address, &http.Client{Transport: transport, Timeout: patience}}
}

// get returns the status code and the text of a page, or the code 0 if the server does not listen.
func (w *webClient) get(path string) (int, string) {
	w.t.Helper()
	resp, err := w.http.Get(w.base + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, string(text)
}

// waitForPage waits until a page has a status code and contains a text.
func (w *webClient) waitForPage(path string, code int, text string) {
	w.t.Helper()
	var got int
	var body string
	require.Eventually(w.t, func() bool {
		got, body = w.get(path)
		return got == code && strings.Contains(body, text)
	}, patience, 5*time.Millisecond, "%s: want %d %s", path, code, text)
}

func (w *webClient) requirePage(path string, code int, text string) {
	w.t.Helper()
	got, body := w.get(path)
	require.Equal(w.t, code, got, "%s: %s", path, body)
	require.Contains(w.t, body, text, path)
}

// leaderPage is the JSON content of the page /leader.
type leaderPage struct {
	Leads    bool
	Token    int64
	Deadline *time.Time
	Leader   *candidateInfo
}

// listening contains the flags that start the HTTP server at an unused port.
var listening = []string{"--listen", "127.0.0.1:0"}

// TestWebServer_PagesFollowHandOver checks that the pages of --listen show the current state of the old and of the
// new leader at each step of a hand-over.
func TestWebServer_PagesFollowHandOver(t *testing.T) {
	h := newZooKeeperHarness(t)
	a := h.run("a", graceful, append(listening, "--value", "a:80", "--leader-begin-command", "echo begins; while [ ! -e $FILE.go ]; do sleep 0.01; done",
		"--leader-end-command", "echo ends; while [ ! -e $FILE.end ]; do sleep 0.01; done")...)
	a.waitForOutput("begins")
	pa := a.webClient()
	_, index := pa.get("/")
	for _, link := range regexp.MustCompile(`href="(.*?)"`).FindAllStringSubmatch(index, -1) {
		code, _ := pa.get("/" + link[1])
		require.NotContains(t, []int{0, 404}, code, link[1])
	}
	require.Equal(t, 4, strings.Count(index, "href="), index)
	pa.requirePage("/healthz", 200, `{"ok":true}`)
	pa.requirePage("/readyz", 200, `{"ok":true}`)
	pa.requirePage("/leader", 503, `"leads":false`)
	createFile(t, h.file+".go")
	a.waitForOutput("started")
	pa.requirePage("/leader", 200, `"leads":true`)
	var l leaderPage
	_, text := pa.get("/leader")
	require.NoError(t, json.Unmarshal([]byte(text), &l))
	require.Positive(t, l.Token)
	require.WithinRange(t, *l.Deadline, time.Now(), time.Now().Add(sessionTimeout))
	require.Equal(t, "a", l.Leader.Name)
	require.Equal(t, "a:80", l.Leader.Value)
	require.Equal(t, l.Token, l.Leader.Token)

	b := h.run("b", graceful, listening...)
	pb := b.webClient()
	pb.waitForPage("/leader", 503, `"name":"a"`)
	var seen leaderPage // the page of another instance
	_, text = pb.get("/leader")
	require.NoError(t, json.Unmarshal([]byte(text), &seen))
	// Do not compare LeadsSince, because each instance observes the leader at another time.
	for _, leader := range []*candidateInfo{l.Leader, seen.Leader} {
		leader.Joined, leader.LeadsSince, leader.Session = time.Time{}, time.Time{}, ""
	}
	require.Equal(t, seen.Leader, l.Leader)
	pb.waitForPage("/readyz", 200, "ok")
	pb.requirePage("/healthz", 200, "ok")
	pa.waitForPage("/metrics", 200, "elector_program_running{election=\"/jobs/one\"} 1\n")
	pa.waitForPage("/metrics", 200, "elector_state{election=\"/jobs/one\",state=\"LEADER\"} 1\n")
	_, text = pa.get("/metrics")
	for _, line := range []string{
		`elector_leader{election="/jobs/one"} 1`,
		`elector_state{election="/jobs/one",state="LEADER"} 1`,
		`elector_state{election="/jobs/one",state="NOTLEADER"} 0`,
		`elector_terms_total{election="/jobs/one"} 1`,
		`elector_handler_running{election="/jobs/one",handler="begin"} 0`,
		`elector_handler_running{election="/jobs/one",handler="work"} 1`,
		`elector_handler_seconds_count{election="/jobs/one",handler="begin"} 1`,
		`elector_handler_failures_total{election="/jobs/one",handler="begin"} 0`,
		`leaderelection_leader{election="/jobs/one"} 1`,
		`leaderelection_elected_total{election="/jobs/one"} 1`,
		"go_goroutines ", "process_resident_memory_bytes ",
	} {
		require.Contains(t, text, "\n"+line, text)
	}
	_, text = pb.get("/metrics")
	require.Contains(t, text, `elector_leader{election="/jobs/one"} 0`)
	require.Contains(t, text, `elector_program_running{election="/jobs/one"} 0`)

	// The pages report that the leadership has ended already before the end command runs.
	a.signal(syscall.SIGTERM)
	a.waitForOutput("ends")
	pa.requirePage("/leader", 503, `"leads":false`)
	pa.requirePage("/readyz", 503, `"reason":"resigning"`)
	pa.requirePage("/healthz", 200, "ok")
	createFile(t, h.file+".end")
	require.Equal(t, cmdline.OK, a.exitCode())
	code, _ := pa.get("/healthz")
	require.Zero(t, code, "the server listens after the process has exited")
	b.waitForOutput("started")
	pb.requirePage("/leader", 200, `"leads":true`)
	b.terminate()
}

// TestWebServer_LeaderPageFailsAfterLeaseExpires checks that /leader does not return status 200 to a request that was
// sent after the lease of the leader had expired.
func TestWebServer_LeaderPageFailsAfterLeaseExpires(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.lead("a", stubborn, append(listening, "--leader-end-command", "sleep 1")...)
	pa := a.webClient()
	pa.requirePage("/leader", 200, "true")
	h.srv.Blackhole(zktest.BothWays)
	var deadline time.Time // the deadline in the last response
	for {
		requested := time.Now()
		code, text := pa.get("/leader")
		if code == http.StatusServiceUnavailable {
			break
		}
		var l leaderPage
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		require.False(t, !deadline.IsZero() && requested.After(*l.Deadline), "leader after %v", l.Deadline)
		deadline = *l.Deadline
	}
	require.NotZero(t, deadline)
	require.Less(t, time.Until(deadline), sessionTimeout/2, "the leadership ended long before the lease expired")
	pa.waitForPage("/readyz", 503, "ok")
	pa.requirePage("/healthz", 200, "ok") // the instance is healthy while the end command runs
	h.srv.Heal()
	pa.waitForPage("/leader", 200, "true")
	pa.waitForPage("/readyz", 200, "ok")
	a.signal(syscall.SIGTERM)
	a.exitCode()
}

// TestWebServer_IsAliveButNotReadyWithoutBackend checks that an instance whose servers do not answer reports that it
// is alive but not ready, leads when the servers are started, and exits after TERM.
func TestWebServer_IsAliveButNotReadyWithoutBackend(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	h.srv.Stop()
	a := h.run("a", graceful, listening...)
	pa := a.webClient()
	pa.requirePage("/readyz", 503, `{"ok":false,"reason":"disconnected"}`)
	a.waitForLog("no session on zookeeper") // only the log contains this text, not the page
	pa.requirePage("/healthz", 200, "ok")
	pa.requirePage("/leader", 503, `"leader":null`)
	b := h.run("b", graceful)
	b.waitForLog("no ZooKeeper server has granted a session")
	b.terminate()
	h.srv.Restart(zktest.KeepTree)
	pa.waitForPage("/readyz", 200, "ok")
	a.waitForOutput("started")
	a.terminate()
}

// TestWebServer_ClosesConnectionOfSlowClient checks that the server of --listen closes the connection of a client
// that does not complete its request, and that such a client does not prevent elector from exiting.
func TestWebServer_ClosesConnectionOfSlowClient(t *testing.T) {
	t.Parallel()
	h := newZooKeeperHarness(t)
	a := h.run("a", graceful, listening...)
	pa := a.webClient()
	sendIncomplete := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(pa.base, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, "GET /leader HTTP/1.1\r\nHost:")
		require.NoError(t, err)
		return conn
	}
	_, err := io.ReadAll(sendIncomplete())
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server has not closed the connection")
	a.waitForOutput("started")
	sendIncomplete()
	a.terminate()
}

// TestWebServer_ElectorExitsIfPortIsInUse checks that elector exits, and does not join the election, if the port of
// --listen is in use.
func TestWebServer_ElectorExitsIfPortIsInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	h := newZooKeeperHarness(t)
	a := h.run("a", stubborn, "--listen", other.Addr().String())
	a.requireExit(cmdline.Failed, "address already in use")
	require.NotContains(t, a.log.Text(), "joining election")
	require.NotContains(t, h.srv.Tree(), "one", "elector has joined the election")
	require.Equal(t, cmdline.Usage, h.run("b", stubborn, "--listen", "8080").exitCode())
}

// newTestServer returns the server of an Elector that does not run yet. The server does not listen.
func newTestServer(t *testing.T, e *elector.Elector) *webServer {
	t.Helper()
	s := &settings{election: "/e", log: slog.New(slog.DiscardHandler)}
	return newWebServer(&runCommand{settings: s}, e, backend{}, t.Context().Done())
}

// getPage returns the status code and the text of a page.
func getPage(w *webServer, path string) (code int, text string) {
	recorder := httptest.NewRecorder()
	w.newHandler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func statusCode(w *webServer, path string) int {
	code, _ := getPage(w, path)
	return code
}

// TestWebServer_LeaderPageChecksClock checks that /leader returns status 503 as soon as the deadline of the
// leadership has passed, even if no event has reported the loss yet. A process that continues after SIGSTOP answers
// requests before it notices that its lease has expired.
func TestWebServer_LeaderPageChecksClock(t *testing.T) {
	w := newTestServer(t, &elector.Elector{})
	deadline := time.Now().Add(time.Hour)
	l, _ := candidacy.NewLeadership(7, func() time.Time { return deadline })
	w.term = &begunTerm{context.Background(), l}
	require.Equal(t, 200, statusCode(w, "/leader"))
	deadline = time.Now().Add(-time.Nanosecond)
	require.Equal(t, 503, statusCode(w, "/leader"))
}

// TestWebServer_HealthFailsWhileLoopIsStuck checks that /healthz returns status 503 while the loop of the Elector is
// blocked, and status 200 before and after its method Run.
func TestWebServer_HealthFailsWhileLoopIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, ctx := make(chan struct{}), t.Context()
		e := &elector.Elector{
			NewCandidate: func(ctx context.Context) (leaderelection.Candidate, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Logger: slog.New(slog.NewTextHandler(blockingWriter{stuck}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		w := newTestServer(t, e)
		require.Equal(t, 200, statusCode(w, "/healthz"), "Run was not called yet")
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, 503, statusCode(w, "/healthz"))
		close(stuck)
		require.Equal(t, 200, statusCode(w, "/healthz"))
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, 200, statusCode(w, "/healthz"), "Run has returned")
	})
}

// blockingWriter blocks until a channel is closed.
type blockingWriter struct{ until chan struct{} }

func (b blockingWriter) Write(p []byte) (int, error) { <-b.until; return len(p), nil }
