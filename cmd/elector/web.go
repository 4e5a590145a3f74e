package main

// What --listen serves: whether this process is alive, takes part and leads, and metrics.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
)

const (
	signLimit  = time.Second // for the loop to give a sign of life
	closeLimit = 2 * time.Second
)

// web answers for one run.
type web struct {
	*runner
	elector *elector.Elector
	backend backend
	ending  <-chan struct{} // closed when this run hands over
	metrics *metrics

	stopped   chan struct{} // closed when events are no longer recorded
	recording sync.WaitGroup

	mu   sync.Mutex
	term *begun // the last
}

// begun is a term whose begin command has succeeded.
type begun struct {
	ctx context.Context // ends when the leadership is lost, or about to be given up
	l   *leaderelection.Leadership
}

// serve has e's handlers counted and listens, from now on until stop is called. ctx is
// that of the run. Without --listen it does nothing.
func (r *runner) serve(ctx context.Context, e *elector.Elector, b backend) (stop func(), err error) {
	if r.listenOn == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.listenOn)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", r.listenOn, err)
	}
	w := &web{runner: r, elector: e, backend: b, ending: ctx.Done(), stopped: make(chan struct{})}
	w.metrics = newMetrics(w)
	w.attach(e)
	r.log.Info("listening", "address", listener.Addr().String())

	server := &http.Server{
		Handler:           w.routes(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	}
	var all sync.WaitGroup
	r.onReport = append(r.onReport, w.metrics.show)
	all.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.log.Error("HTTP server failed", "err", err)
		}
	})
	return func() {
		limit, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if server.Shutdown(limit) != nil {
			_ = server.Close() // whoever does not read
		}
		all.Wait()
		w.mu.Lock()
		close(w.stopped)
		w.mu.Unlock()
		w.recording.Wait()
	}, nil
}

func (w *web) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), signLimit)
		defer cancel()
		err := w.elector.Ping(ctx)
		if errors.Is(err, elector.ErrNotRunning) {
			err = nil // it is about to run, or to end: the pages are there a moment longer
		}
		if err == nil && w.backend.healthy != nil {
			err = w.backend.healthy()
		}
		answer(rw, err)
	})
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, w.ready()) })
	mux.HandleFunc("GET /leader", w.tellLeader)
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.metrics.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(w.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: 5 * time.Second,
	}))
	return mux
}

// ready is why this instance is no candidate that could lead, nil if it is one.
func (w *web) ready() error {
	select {
	case <-w.ending:
		return errors.New("resigning")
	default:
	}
	report := w.elector.Current()
	if report.State == elector.StateError {
		return fmt.Errorf("waits after an error: %w", report.Err)
	}
	if err := w.backend.checkConnected(); err != nil {
		return err
	}
	switch c := report.Candidate; {
	case c.Err != nil:
		return c.Err
	case c.CandidateID == "":
		return errors.New("has not joined the election yet")
	case c.Role == leaderelection.Suspended:
		return errors.New("leadership is suspended: it could not be confirmed in time")
	}
	return nil
}

// leads is the leadership by which this instance acts at this moment, nil without one. It
// asks the clock: a process that was stopped finds its lease over.
func (w *web) leads() *leaderelection.Leadership {
	w.mu.Lock()
	t := w.term
	w.mu.Unlock()
	if t == nil || t.ctx.Err() != nil || t.l.Err() != nil {
		return nil
	}
	return t.l
}

func (w *web) tellLeader(rw http.ResponseWriter, _ *http.Request) {
	reply := struct {
		Leads    bool       `json:"leads"`
		Election string     `json:"election"`
		Instance string     `json:"instance"`           // this one
		Token    int64      `json:"token,omitempty"`    // of this one's leadership
		Deadline *time.Time `json:"deadline,omitempty"` // of its proof, which is extended meanwhile
		Leader   *place     `json:"leader"`             // where it is not this one; null if not known
	}{Election: w.election, Instance: w.instanceID}
	code := http.StatusServiceUnavailable
	if l := w.leads(); l != nil {
		code, reply.Leads, reply.Token = http.StatusOK, true, l.Token()
		if d := l.Deadline(); !d.IsZero() {
			reply.Deadline = &d
		}
	} else {
		reply.Leader = w.whoLeads()
	}
	write(rw, code, reply)
}

// whoLeads returns the leader, nil if it is not known.
func (w *web) whoLeads() *place {
	if w.backend.checkConnected() != nil {
		return nil // the last observation may be old
	}
	return w.leader.get()
}

// answer is 200, or 503 and the reason.
func answer(rw http.ResponseWriter, err error) {
	reply := struct {
		OK     bool   `json:"ok"`
		Reason string `json:"reason,omitempty"`
	}{OK: err == nil}
	code := http.StatusOK
	if err != nil {
		code, reply.Reason = http.StatusServiceUnavailable, err.Error()
	}
	write(rw, code, reply)
}

func write(rw http.ResponseWriter, code int, reply any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(reply) // who asked may have gone
}
