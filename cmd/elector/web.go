package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

const (
	// pingLimit is how long the loop of the Elector may take to answer a Ping.
	pingLimit = time.Second
	// shutdownLimit is how long elector waits for pending HTTP requests when it exits.
	shutdownLimit = 2 * time.Second
)

// webServer is the HTTP server of --listen. Its pages show the health, the leadership and the metrics of a run.
type webServer struct {
	run      *runCommand
	elector  *elector.Elector
	backend  backend
	stopping <-chan struct{} // closed when this instance begins to hand over the leadership
	metrics  *metrics
	queue    *queueView
	log      *slog.Logger // a logger that limits repeated warnings

	mu   sync.Mutex
	term *begunTerm // the last leadership whose begin command has succeeded, or nil
}

// begunTerm is a leadership whose begin command has succeeded.
type begunTerm struct {
	ctx        context.Context // done when the leadership is lost, or is about to be released
	leadership *leaderelection.Leadership
}

// startWeb starts the HTTP server of --listen, which runs until stop is called, and makes it observe the handlers and
// candidates of e. Without --listen it does nothing. ctx is the context of the run, and limit is the maximum number
// of connections.
func (r *runCommand) startWeb(ctx context.Context, e *elector.Elector, b backend, limit int) (stop func(), err error) {
	if r.listenAddress == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.listenAddress)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", r.listenAddress, err)
	}
	w := newWebServer(r, e, b, ctx.Done())
	log := r.settings.log
	log.Info("listening", "address", listener.Addr().String())
	address, _ := listener.Addr().(*net.TCPAddr)
	names, check := checkedHosts(r.listenAddress, address != nil && address.IP.IsLoopback(), r.listenHosts)
	server := newHTTPServer(w.checkHost(w.newHandler(), names, check), limit, log)
	var serving sync.WaitGroup
	r.onReport = append(r.onReport, w.metrics.setState)
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP server failed", "err", err)
		}
	})
	return func() {
		limit, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if server.Shutdown(limit) != nil {
			_ = server.Close() // Close, unlike Shutdown, also closes the connections of clients that do not read
		}
		serving.Wait()
		w.metrics.stopRecording()
	}, nil
}

// newWebServer returns a server that observes the handlers and candidates of e, but does not listen yet.
func newWebServer(r *runCommand, e *elector.Elector, b backend, stopping <-chan struct{}) *webServer {
	w := &webServer{run: r, elector: e, backend: b, stopping: stopping, queue: newQueueView(b, r.settings.election), log: r.settings.limitedLog()}
	w.metrics = newMetrics(r.settings.election, stopping,
		func() bool { return w.currentLeadership() != nil }, r.program.isRunning)
	w.metrics.instrumentHandlers(e)
	w.rememberTerms(e)
	return w
}

// rememberTerms makes e store each leadership in w after the begin command has succeeded.
func (w *webServer) rememberTerms(e *elector.Elector) {
	begin := e.Begin
	if begin == nil {
		return
	}
	e.Begin = func(ctx context.Context, l *leaderelection.Leadership) error {
		err := begin(ctx, l)
		if err == nil {
			w.mu.Lock()
			w.term = &begunTerm{ctx, l}
			w.mu.Unlock()
		}
		return err
	}
}

func (w *webServer) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", w.writePage)
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, r *http.Request) { w.writeHealth(rw, w.checkAlive(r.Context())) })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) { w.writeHealth(rw, w.checkReady()) })
	mux.HandleFunc("GET /leader", w.writeLeader)
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.metrics.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(w.run.settings.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: 5 * time.Second,
		ErrorHandling: promhttp.ContinueOnError, // log errors instead of writing them to the client
	}))
	return mux
}

// checkHost returns a handler that, if check is true, rejects requests whose Host header contains none of the names.
func (w *webServer) checkHost(handler http.Handler, names []string, check bool) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if check && !isAllowedHost(r.Host, names) {
			w.log.Warn("rejected a request: the Host header contains neither an IP address nor a name of --listen-hosts", "host", r.Host)
			writeJSON(rw, http.StatusMisdirectedRequest, healthReply{Reason: "host"})
			return
		}
		handler.ServeHTTP(rw, r)
	})
}

// condition is the reason why this process is not healthy or not ready. The field reason is a code for clients, which
// is empty if the process is healthy or ready. err is only logged, because it can contain addresses and names of
// users; it may be nil.
type condition struct {
	reason string
	err    error
}

// checkAlive returns a condition with a reason if a restart of this process could help.
func (w *webServer) checkAlive(ctx context.Context) condition {
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	// Ignore ErrNotRunning, because the server also runs before and after the Run of the Elector.
	if err := w.elector.Ping(ctx); err != nil && !errors.Is(err, elector.ErrNotRunning) {
		return condition{"stuck", err}
	}
	if w.backend.healthy != nil {
		if err := w.backend.healthy(); err != nil {
			return condition{"backend", err}
		}
	}
	return condition{}
}

// checkReady returns a condition with a reason if this instance is neither the leader nor a candidate that could
// become the leader.
func (w *webServer) checkReady() condition {
	select {
	case <-w.stopping:
		return condition{reason: "resigning"}
	default:
	}
	report := w.elector.Current()
	if report.State == elector.StateError {
		return condition{"error", report.Err}
	}
	if err := w.backend.checkConnected(); err != nil {
		return condition{"disconnected", err}
	}
	switch c := report.Candidate; {
	case c.Err != nil:
		return condition{"error", c.Err}
	case c.CandidateID == "":
		return condition{reason: "joining"}
	case c.Role == leaderelection.Suspended:
		return condition{reason: "suspended"}
	}
	return condition{}
}

// currentLeadership returns the leadership in which this instance acts at this moment, or nil. It compares the lease
// with the clock, because a process that continues after SIGSTOP may not have noticed yet that its lease has expired.
func (w *webServer) currentLeadership() *leaderelection.Leadership {
	w.mu.Lock()
	t := w.term
	w.mu.Unlock()
	if t == nil || t.ctx.Err() != nil || t.leadership.Err() != nil {
		return nil
	}
	return t.leadership
}

// leaderReply is the JSON content of the page /leader.
type leaderReply struct {
	Leads    bool           `json:"leads"`
	Election string         `json:"election"`
	Instance string         `json:"instance"`           // the name of this instance
	Token    int64          `json:"token,omitempty"`    // the token of the leadership of this instance
	Deadline *time.Time     `json:"deadline,omitempty"` // the deadline of the lease of this instance
	Leader   *candidateInfo `json:"leader"`             // the leader, which may be this instance; null if it is unknown
}

// leader returns what the page /leader shows: the current leader, as far as this instance knows it.
func (w *webServer) leader() leaderReply {
	reply := leaderReply{Election: w.run.settings.election, Instance: w.run.settings.instanceID}
	if w.backend.checkConnected() == nil { // if the backend is not connected, the observation may be outdated
		reply.Leader = w.run.leader.get()
	}
	if l := w.currentLeadership(); l != nil {
		reply.Leads, reply.Token = true, l.Token()
		if reply.Leader == nil || reply.Leader.Token != l.Token() {
			// This instance leads, but the backend has not reported it as the leader yet.
			reply.Leader = w.run.ownInfo()
			reply.Leader.ID, reply.Leader.Token = w.elector.Current().Candidate.CandidateID, l.Token()
		}
		if d := l.Deadline(); !d.IsZero() {
			reply.Deadline = &d
		}
	}
	return reply
}

// writeLeader writes the page /leader.
func (w *webServer) writeLeader(rw http.ResponseWriter, _ *http.Request) {
	reply, code := w.leader(), http.StatusServiceUnavailable
	if reply.Leads {
		code = http.StatusOK
	}
	writeJSON(rw, code, reply)
}

type healthReply struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// writeHealth writes status 200, or status 503 and the reason of the condition, and logs the error of the condition.
func (w *webServer) writeHealth(rw http.ResponseWriter, c condition) {
	if c.err != nil {
		w.log.Warn("a health check has failed", "reason", c.reason, "err", c.err)
	}
	code := http.StatusOK
	if c.reason != "" {
		code = http.StatusServiceUnavailable
	}
	writeJSON(rw, code, healthReply{OK: c.reason == "", Reason: c.reason})
}

func writeJSON(rw http.ResponseWriter, code int, reply any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = cmdline.WriteJSON(rw, reply) // ignore the error: the client has closed the connection
}
