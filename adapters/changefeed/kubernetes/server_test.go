package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// fakeServer is the part of an API server that the store uses: get, create, patch and watch of Leases, with
// the rules for resourceVersion, uid and dryRun. It has one namespace, default.
type fakeServer struct {
	addr string

	mu       sync.Mutex
	server   *http.Server
	revision int
	leases   map[string]*coordination.Lease
	watches  map[*watcher]bool
	// intercept is called before each request, and answers it by returning true. It is nil at first.
	intercept func(w http.ResponseWriter, r *http.Request) bool
}

// watcher is the watch of a client. The server sends it the events, encoded as JSON.
type watcher struct {
	name   string
	events chan []byte
}

// startFakeServer starts a fake server until the test ends.
func startFakeServer(t testing.TB) *fakeServer {
	t.Helper()
	s := &fakeServer{leases: map[string]*coordination.Lease{}, watches: map[*watcher]bool{}, addr: "127.0.0.1:0"}
	s.listen(t)
	t.Cleanup(s.stop)
	return s
}

func (s *fakeServer) listen(t testing.TB) {
	t.Helper()
	var l net.Listener
	require.Eventually(t, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", s.addr)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	server := &http.Server{Handler: s}
	s.mu.Lock()
	s.addr, s.server = l.Addr().String(), server
	s.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

// stop closes the listener and all connections.
func (s *fakeServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.server.Close()
}

// restart stops the server and starts it again with the same data.
func (s *fakeServer) restart(t testing.TB) {
	s.stop()
	s.listen(t)
}

// config returns the configuration of a client.
func (s *fakeServer) config() *rest.Config { return &rest.Config{Host: "http://" + s.addr} }

// setIntercept sets the interceptor of later requests, or removes it if f is nil.
func (s *fakeServer) setIntercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// lease returns a copy of a Lease, or nil.
func (s *fakeServer) lease(name string) *coordination.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name].DeepCopy()
}

// putLease replaces a Lease, or deletes it if change returns nil. change receives nil if the Lease does not
// exist.
func (s *fakeServer) putLease(name string, change func(*coordination.Lease) *coordination.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(name, change(s.leases[name].DeepCopy()))
}

// write writes a Lease and notifies the watches. The caller must hold mu.
func (s *fakeServer) write(name string, l *coordination.Lease) {
	s.revision++
	old := s.leases[name]
	switch {
	case l == nil && old != nil:
		delete(s.leases, name)
		s.notify("DELETED", name, old)
	case l == nil:
	default:
		kind := "MODIFIED"
		if old == nil {
			kind, l.UID = "ADDED", types.UID(fmt.Sprint("uid-", s.revision))
		}
		l.TypeMeta = meta.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
		l.Name, l.Namespace, l.ResourceVersion = name, "default", strconv.Itoa(s.revision)
		s.leases[name] = l
		s.notify(kind, name, l)
	}
}

// notify sends an event to the watches of a name. The caller must hold mu.
func (s *fakeServer) notify(kind, name string, object any) {
	event, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	event = append(event, '\n')
	for w := range s.watches {
		if w.name == name {
			select {
			case w.events <- event:
			default: // End the watch of a client that does not receive events, as an API server does.
				delete(s.watches, w)
				close(w.events)
			}
		}
	}
}

// sendEvent sends an event to all watches of a name.
func (s *fakeServer) sendEvent(kind, name string, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify(kind, name, object)
}

// endWatches ends all watches, as an API server does after some minutes.
func (s *fakeServer) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		delete(s.watches, w)
		close(w.events)
	}
}

// countWatches returns the number of watches.
func (s *fakeServer) countWatches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

// failure returns the status of a failed request.
func failure(code int, reason meta.StatusReason) meta.Status {
	return meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: meta.StatusFailure,
		Reason: reason, Code: int32(code), Message: "fake server: " + string(reason),
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, reason meta.StatusReason) {
	reply(w, code, failure(code, reason))
}

// throttle answers like an overloaded API server, with status 429.
func throttle(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	fail(w, http.StatusTooManyRequests, meta.StatusReasonTooManyRequests)
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	intercept := s.intercept
	s.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/default/leases")
	name = strings.TrimPrefix(name, "/")
	switch {
	case !ok:
		fail(w, http.StatusNotFound, meta.StatusReasonNotFound)
	case r.URL.Query().Get("watch") == "true":
		s.serveWatch(w, r)
	case r.Method == http.MethodGet:
		if l := s.lease(name); l != nil {
			reply(w, http.StatusOK, l)
		} else {
			fail(w, http.StatusNotFound, meta.StatusReasonNotFound)
		}
	case r.Method == http.MethodPost:
		s.serveCreate(w, r)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.MergePatchType):
		s.servePatch(w, r, name)
	default:
		fail(w, http.StatusMethodNotAllowed, meta.StatusReasonMethodNotAllowed)
	}
}

func (s *fakeServer) serveCreate(w http.ResponseWriter, r *http.Request) {
	l := &coordination.Lease{}
	if err := json.NewDecoder(r.Body).Decode(l); err != nil {
		fail(w, http.StatusBadRequest, meta.StatusReasonBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.Name] != nil {
		fail(w, http.StatusConflict, meta.StatusReasonAlreadyExists)
		return
	}
	if r.URL.Query().Get("dryRun") != meta.DryRunAll {
		s.write(l.Name, l)
	}
	reply(w, http.StatusCreated, l)
}

func (s *fakeServer) servePatch(w http.ResponseWriter, r *http.Request, name string) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, meta.StatusReasonBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.leases[name]
	if old == nil {
		fail(w, http.StatusNotFound, meta.StatusReasonNotFound)
		return
	}
	metadata, _ := body["metadata"].(map[string]any)
	for field, value := range map[string]string{"uid": string(old.UID), "resourceVersion": old.ResourceVersion} {
		if wanted, ok := metadata[field]; ok && wanted != value {
			fail(w, http.StatusConflict, meta.StatusReasonConflict)
			return
		}
	}
	var current map[string]any
	convert(old, &current)
	mergePatch(current, body)
	l := &coordination.Lease{}
	convert(current, l)
	if seconds := l.Spec.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
		fail(w, http.StatusUnprocessableEntity, meta.StatusReasonInvalid)
		return
	}
	s.write(name, l)
	reply(w, http.StatusOK, l)
}

// convert encodes from as JSON and decodes the JSON into to.
func convert(from, to any) {
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		panic(err)
	}
}

// mergePatch applies a JSON merge patch (RFC 7386).
func mergePatch(target, patch map[string]any) {
	for name, value := range patch {
		object, isObject := value.(map[string]any)
		old, wasObject := target[name].(map[string]any)
		switch {
		case value == nil:
			delete(target, name)
		case isObject && wasObject:
			mergePatch(old, object)
		default:
			target[name] = value
		}
	}
}

// serveWatch sends the current Lease and then its changes.
func (s *fakeServer) serveWatch(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	watch := &watcher{name: name, events: make(chan []byte, 1000)}
	s.mu.Lock()
	s.watches[watch] = true
	if l := s.leases[name]; l != nil {
		event, _ := json.Marshal(map[string]any{"type": "ADDED", "object": l})
		watch.events <- append(event, '\n')
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.watches, func(other *watcher, _ bool) bool { return other == watch })
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	for {
		select {
		case event, ok := <-watch.events:
			if !ok {
				return
			}
			_, _ = w.Write(event)
			flush()
		case <-r.Context().Done():
			return
		}
	}
}
