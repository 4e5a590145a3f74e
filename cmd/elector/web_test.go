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
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// page is one of --listen.
type page struct {
	t    *testing.T
	base string
	http *http.Client
}

// pages are those of a process with --listen 127.0.0.1:0.
func (p *process) pages() *page {
	p.t.Helper()
	line := p.logs("msg=listening")
	_, address, _ := strings.Cut(line, "address=")
	transport := &http.Transport{}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &page{p.t, "http://" + address, &http.Client{Transport: transport, Timeout: patience}}
}

// get is the code and the text of a page; code 0 if nobody listens.
func (p *page) get(path string) (int, string) {
	p.t.Helper()
	resp, err := p.http.Get(p.base + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(text)
}

// becomes waits until a page has a code and a text.
func (p *page) becomes(path string, code int, text string) {
	p.t.Helper()
	var got int
	var body string
	require.Eventually(p.t, func() bool {
		got, body = p.get(path)
		return got == code && strings.Contains(body, text)
	}, patience, 5*time.Millisecond, "%s: want %d %s", path, code, text)
}

func (p *page) is(path string, code int, text string) {
	p.t.Helper()
	got, body := p.get(path)
	require.Equal(p.t, code, got, "%s: %s", path, body)
	require.Contains(p.t, body, text, path)
}

// leader is what /leader says.
type leader struct {
	Leads    bool
	Token    int64
	Deadline *time.Time
	Leader   *candidate
}

// letGo makes the file for which a script waits.
func letGo(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, nil, 0o600))
}

var listening = []string{"--listen", "127.0.0.1:0"}

func TestPages(t *testing.T) {
	e := newElectors(t)
	a := e.run("a", polite, append(listening, "--leader-begin-command", "echo begins; while [ ! -e $FILE.go ]; do sleep 0.01; done",
		"--leader-end-command", "echo ends; while [ ! -e $FILE.end ]; do sleep 0.01; done")...)
	a.says("begins")
	pa := a.pages()
	pa.is("/healthz", 200, `{"ok":true}`)
	pa.is("/readyz", 200, `{"ok":true}`)
	pa.is("/leader", 503, `"leads":false`)
	letGo(t, e.file+".go")
	a.says("started")
	pa.is("/leader", 200, `"leads":true`)
	var l leader
	_, text := pa.get("/leader")
	require.NoError(t, json.Unmarshal([]byte(text), &l))
	require.Positive(t, l.Token)
	require.WithinRange(t, *l.Deadline, time.Now(), time.Now().Add(session))
	require.Nil(t, l.Leader)

	b := e.run("b", polite, listening...)
	pb := b.pages()
	pb.becomes("/leader", 503, `"name":"a"`)
	pb.becomes("/readyz", 200, "ok")
	pb.is("/healthz", 200, "ok")
	pa.becomes("/metrics", 200, "elector_program_running{election=\"/jobs/one\"} 1\n")
	pa.becomes("/metrics", 200, "elector_state{election=\"/jobs/one\",state=\"LEADER\"} 1\n")
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

	// What is about to end is told of before the end command.
	a.signal(syscall.SIGTERM)
	a.says("ends")
	pa.is("/leader", 503, `"leads":false`)
	pa.is("/readyz", 503, `"reason":"resigning"`)
	pa.is("/healthz", 200, "ok")
	letGo(t, e.file+".end")
	require.Equal(t, exitOK, a.exit())
	code, _ := pa.get("/healthz")
	require.Zero(t, code, "it listens after its end")
	b.says("started")
	pb.is("/leader", 200, `"leads":true`)
	b.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, b.exit())
}

// TestLeaderPageInTime: no answer says that an instance leads to a question asked after
// the end of what was proven to another.
func TestLeaderPageInTime(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", busy, append(listening, "--leader-end-command", "sleep 1")...)
	a.says("works")
	pa := a.pages()
	pa.is("/leader", 200, "true")
	e.srv.Blackhole(zktest.BothWays)
	var proven time.Time
	for {
		asked := time.Now()
		code, text := pa.get("/leader")
		if code == http.StatusServiceUnavailable {
			break
		}
		var l leader
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		require.False(t, !proven.IsZero() && asked.After(*l.Deadline), "leads after %v", l.Deadline)
		proven = *l.Deadline
	}
	require.NotZero(t, proven)
	require.Less(t, time.Until(proven), session/2, "it stopped leading long before the end of what was proven")
	pa.becomes("/readyz", 503, "ok")
	pa.is("/healthz", 200, "ok") // while the end command runs
	e.srv.Heal()
	pa.becomes("/leader", 200, "true")
	pa.becomes("/readyz", 200, "ok")
	a.signal(syscall.SIGTERM)
	a.exit()
}

// TestPagesWithoutTheBackend: alive, and not ready.
func TestPagesWithoutTheBackend(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	e.srv.Stop()
	a := e.run("a", polite, listening...)
	pa := a.pages()
	pa.is("/readyz", 503, "no session on zookeeper")
	pa.is("/healthz", 200, "ok")
	pa.is("/leader", 503, `"leader":null`)
	e.srv.Restart(zktest.KeepTree)
	pa.becomes("/readyz", 200, "ok")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

// TestSlowClient: nobody holds a connection for ever by not asking, or the end up.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	e := newElectors(t)
	a := e.run("a", polite, listening...)
	pa := a.pages()
	ask := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(pa.base, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, "GET /leader HTTP/1.1\r\nHost:")
		require.NoError(t, err)
		return conn
	}
	_, err := io.ReadAll(ask())
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it waits for ever")
	a.says("started")
	ask()
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

func TestPortThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	e := newElectors(t)
	a := e.run("a", busy, "--listen", taken.Addr().String())
	require.Equal(t, exitFailed, a.exit())
	a.logs("address already in use")
	require.NotContains(t, a.log.text(), "joining election")
	require.NotContains(t, e.srv.Tree(), "one", "it has taken part")
	require.Equal(t, exitUsage, e.run("b", busy, "--listen", "8080").exit())
}

// TestLostGraceTooLong: what the session timeout does not allow is refused, by what is
// asked for and by what is granted, before anything is begun.
func TestLostGraceTooLong(t *testing.T) {
	e := newElectors(t, zktest.WithSessionTimeouts(100*time.Millisecond, time.Second))
	a := e.run("a", busy, "--lost-grace", "501ms") // of 4 s
	require.Equal(t, exitUsage, a.exit())
	a.logs("--lost-grace 501ms: more than 500ms, an eighth of the session timeout of 4s that is asked for")
	a = e.run("a", busy, "--lost-grace", "126ms") // of 1 s
	require.Equal(t, exitUsage, a.exit())
	a.logs("--lost-grace 126ms: more than 125ms, an eighth of the session timeout of 1s that is granted")
	require.NotContains(t, e.srv.Tree(), "one", "it has taken part")
	a = e.run("a", busy, "--lost-grace", "125ms", "--grace", "10ms")
	a.says("works")
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

// TestLostGraceAndSettings: the session timeout of the settings bounds --lost-grace.
func TestLostGraceAndSettings(t *testing.T) {
	config := func(args ...string) error {
		root := newRoot()
		root.SetOut(io.Discard)
		root.SetArgs(append([]string{"config", "--lost-grace", "1s", "--leader-begin-command", "x"}, args...))
		return root.Execute()
	}
	require.NoError(t, config("--etcd-endpoints", "x:1", "--session-timeout", "7100ms"), "etcd counts 8 s")
	require.NoError(t, config("--backend", "console"), "it has no lease")
	err := config("--etcd-endpoints", "x:1", "--session-timeout", "7s")
	require.ErrorContains(t, err, "--lost-grace 1s: more than 875ms")
	require.Equal(t, exitUsage, exitCode(err))
}

// TestLostGraceIsBounded: sessions differ.
func TestLostGraceIsBounded(t *testing.T) {
	granted := 8 * time.Second
	r := &runner{granted: func() time.Duration { return granted }}
	require.Equal(t, 800*time.Millisecond, r.boundedLostGrace())
	r.lostGrace = time.Second
	require.Equal(t, time.Second, r.boundedLostGrace())
	granted = 4 * time.Second
	require.Equal(t, 500*time.Millisecond, r.boundedLostGrace())
}

// newWeb is the pages of an Elector that nobody runs yet.
func newWeb(t *testing.T, e *elector.Elector) *web {
	t.Helper()
	s := &settings{election: "/e", log: slog.New(slog.DiscardHandler)}
	w := &web{runner: &runner{settings: s}, elector: e, ending: t.Context().Done()}
	w.metrics = newMetrics(w)
	return w
}

func (w *web) code(path string) int {
	rw := httptest.NewRecorder()
	w.routes().ServeHTTP(rw, httptest.NewRequest(http.MethodGet, path, nil))
	return rw.Code
}

// TestLeaderPageAsksTheClock: a process that was stopped hears of nothing before it is
// asked.
func TestLeaderPageAsksTheClock(t *testing.T) {
	w := newWeb(t, &elector.Elector{})
	deadline := time.Now().Add(time.Hour)
	l, _ := leaderelection.NewLeadership(7, func() time.Time { return deadline })
	w.term = &begun{context.Background(), l}
	require.Equal(t, 200, w.code("/leader"))
	deadline = time.Now().Add(-time.Nanosecond)
	require.Equal(t, 503, w.code("/leader"))
}

// TestEventsOfACandidate: the metrics of package electionprom are those of candidates of any
// backend, until the pages are stopped.
func TestEventsOfACandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewTable().Store("election")
		defer store.Close()
		nothing := func(context.Context, *leaderelection.Leadership) error { return nil }
		e := &elector.Elector{
			NewCandidate: func(context.Context) (leaderelection.Candidate, error) { return changefeed.NewElection(store) },
			Begin:        nothing, End: nothing,
			Error: func(context.Context, *leaderelection.Leadership, error) error { return nil },
		}
		w := newWeb(t, e)
		w.stopped = make(chan struct{})
		w.attach(e)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		time.Sleep(time.Minute)
		metrics := func() string {
			rw := httptest.NewRecorder()
			w.routes().ServeHTTP(rw, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return rw.Body.String()
		}
		require.Contains(t, metrics(), `leaderelection_leader{election="/e"} 1`)
		cancel()
		require.NoError(t, <-ended)
		synctest.Wait()
		require.Contains(t, metrics(), `leaderelection_leader{election="/e"} 0`)

		close(w.stopped)
		late, err := changefeed.NewElection(store)
		require.NoError(t, err)
		w.record(late) // starts nothing
		w.recording.Wait()
		require.NoError(t, late.Resign())
	})
}

// TestLoopThatIsStuck: /healthz says so, within a second.
func TestLoopThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, ctx := make(chan struct{}), t.Context()
		e := &elector.Elector{
			NewCandidate: func(ctx context.Context) (leaderelection.Candidate, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Log: slog.New(slog.NewTextHandler(blocked{stuck}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		w := newWeb(t, e)
		require.Equal(t, 200, w.code("/healthz"), "it is about to run: nothing is stuck")
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, 503, w.code("/healthz"))
		close(stuck)
		require.Equal(t, 200, w.code("/healthz"))
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, 200, w.code("/healthz"), "it has handed over, and is about to end")
	})
}

// blocked is a log that is stuck.
type blocked struct{ until chan struct{} }

func (b blocked) Write(p []byte) (int, error) { <-b.until; return len(p), nil }

// TestMetricsOfFailures: what was interrupted is none.
func TestMetricsOfFailures(t *testing.T) {
	w := newWeb(t, &elector.Elector{})
	var result error
	handler := func(context.Context, *leaderelection.Leadership) error { return result }
	e := &elector.Elector{Begin: handler, End: handler, Error: func(context.Context, *leaderelection.Leadership, error) error { return result }}
	w.attach(e)
	l, revoke := leaderelection.NewLeadership(7, nil)
	result = io.ErrUnexpectedEOF
	require.ErrorIs(t, e.Begin(t.Context(), l), result)
	require.ErrorIs(t, e.End(t.Context(), l), result)
	require.ErrorIs(t, e.Error(t.Context(), l, nil), result)
	require.Nil(t, w.leads(), "begin has failed")
	revoke(leaderelection.ErrLeaseExpired)
	require.ErrorIs(t, e.Begin(t.Context(), l), result)
	require.ErrorIs(t, e.End(t.Context(), l), result)
	for name, want := range map[string]float64{handlerBegin: 1, handlerEnd: 2, handlerError: 1, handlerWork: 0} {
		require.Equal(t, want, testutil.ToFloat64(w.metrics.failures.WithLabelValues(name)), name)
	}
	require.Zero(t, testutil.ToFloat64(w.metrics.terms))
}
