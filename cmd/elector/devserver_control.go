package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// controlHelp is the response of dev-server to GET / at the address of --control.
const controlHelp = `POST requests need the header X-Elector, with any value: curl -H 'X-Elector: 1' -X POST ...

GET  /state                     servers and sessions, as JSON
GET  /tree                      the znodes
POST /sessions/ID/expire        end a session (ID as in /state)
POST /servers/N/stop            N is 1 for the first server
POST /servers/N/start           also ends a pause
POST /servers/N/pause           as SIGSTOP does
POST /servers/N/resume
POST /servers/N/partition       cut off from the other servers, but not from its clients
POST /servers/N/lag?by=1s       apply every transaction late; without by, none until heal
POST /servers/N/heal            end a partition or a lag
POST /servers/N/drop            close the connections of all clients
POST /servers/N/refuse          accept no new connections
POST /servers/N/accept
POST /restart?lose=nothing      all servers; lose=tree or lose=all starts with an empty tree

partition, heal and drop accept ?session=ID, repeatedly, for the connections of these
sessions only.
`

// faultServer is an HTTP server for requests that inject faults into an ensemble.
type faultServer struct {
	ensemble *zktest.Ensemble
	address  string       // the address of --control; "" without the flag
	server   *http.Server // the server of --control; nil without the flag
	serving  sync.WaitGroup
}

// startFaultServer starts an HTTP server for the ensemble, unless address is empty.
func startFaultServer(address string, e *zktest.Ensemble) (*faultServer, error) {
	f := &faultServer{ensemble: e}
	if address == "" {
		return f, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	f.address = listener.Addr().String()
	f.server = newHTTPServer(rejectWebPages(f.newHandler(), []string{hostName(address)}), maxConnections, slog.New(slog.DiscardHandler))
	f.serving.Go(func() { _ = f.server.Serve(listener) })
	return f, nil
}

// rejectWebPages returns a handler that rejects the requests that rejectControl rejects.
func rejectWebPages(handler http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := rejectControl(r.Method, r.Host, r.Header, names); reason != "" {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

func (f *faultServer) close() {
	if f.server != nil {
		_ = f.server.Close()
		f.serving.Wait()
	}
}

func (f *faultServer) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, controlHelp) })
	mux.HandleFunc("GET /tree", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, f.ensemble.Tree()) })
	mux.HandleFunc("GET /state", f.getState)
	mux.HandleFunc("POST /sessions/{id}/expire", f.expireSession)
	mux.HandleFunc("POST /servers/{number}/{action}", f.changeServer)
	mux.HandleFunc("POST /restart", f.restartServers)
	return mux
}

type ensembleState struct {
	Servers  []serverState  `json:"servers"`
	Sessions []sessionState `json:"sessions"`
}

type serverState struct {
	Number      int    `json:"number"`
	Address     string `json:"address"`
	Leader      bool   `json:"leader"`
	Connections int    `json:"connections"`
}

type sessionState struct {
	ID         string   `json:"id"`
	Timeout    string   `json:"timeout"`
	ExpiresIn  string   `json:"expires_in"`
	Server     int      `json:"server"` // the number of the server; 0 if the client is not connected
	Ephemerals []string `json:"ephemerals"`
}

func (f *faultServer) getState(w http.ResponseWriter, _ *http.Request) {
	state := ensembleState{Sessions: []sessionState{}}
	leader := f.ensemble.Leader()
	for i := range f.ensemble.Len() {
		s := f.ensemble.Server(i)
		state.Servers = append(state.Servers, serverState{i + 1, s.Addr(), s == leader, s.Connections()})
	}
	for _, s := range leader.Sessions() {
		state.Sessions = append(state.Sessions, sessionState{
			fmt.Sprintf("%#x", s.ID), s.Timeout.String(), s.ExpiresIn.String(), s.Server + 1, append([]string{}, s.Ephemerals...),
		})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state)
}

func (f *faultServer) expireSession(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 0, 64)
	if err != nil {
		http.Error(w, fmt.Sprintf("session %q: not a number such as 0x10001", r.PathValue("id")), http.StatusBadRequest)
		return
	}
	if err := f.ensemble.Leader().ExpireSession(id); err != nil {
		http.Error(w, fmt.Sprintf("session %#x: %v", id, err), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// changeServer starts or ends a fault of one server.
func (f *faultServer) changeServer(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil || number < 1 || number > f.ensemble.Len() {
		http.Error(w, fmt.Sprintf("server %q: the servers are 1 to %d", r.PathValue("number"), f.ensemble.Len()), http.StatusNotFound)
		return
	}
	var sessions []int64
	for _, text := range r.URL.Query()["session"] {
		id, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			http.Error(w, fmt.Sprintf("session %q: not a number such as 0x10001", text), http.StatusBadRequest)
			return
		}
		sessions = append(sessions, id)
	}
	s, action := f.ensemble.Server(number-1), r.PathValue("action")
	if len(sessions) > 0 && !slices.Contains([]string{"partition", "heal", "drop"}, action) {
		http.Error(w, fmt.Sprintf("%s is for a server, not for sessions", action), http.StatusBadRequest)
		return
	}
	switch action {
	case "stop":
		s.Stop()
	case "start":
		s.Restart(zktest.KeepTree)
	case "pause":
		s.Pause()
	case "resume":
		s.Resume()
	case "partition":
		s.Partition(sessions...)
	case "heal":
		s.Heal(sessions...)
	case "drop":
		s.DropConnections(sessions...)
	case "refuse":
		s.Refuse(true)
	case "accept":
		s.Refuse(false)
	case "lag":
		if by := r.URL.Query().Get("by"); by != "" {
			d, err := time.ParseDuration(by)
			if err != nil || d <= 0 {
				http.Error(w, fmt.Sprintf("by=%s: it must be a positive duration, such as 500ms", by), http.StatusBadRequest)
				return
			}
			s.LagBy(d)
		} else {
			s.Lag()
		}
	default:
		http.Error(w, fmt.Sprintf("no action %q; GET / lists them", action), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// restartServers restarts all servers. The request names the data that they lose.
func (f *faultServer) restartServers(w http.ResponseWriter, r *http.Request) {
	loss, ok := map[string]zktest.Loss{"": zktest.KeepTree, "nothing": zktest.KeepTree, "tree": zktest.LoseTree, "all": zktest.LoseAll}[r.URL.Query().Get("lose")]
	if !ok {
		http.Error(w, fmt.Sprintf("lose=%s: it must be nothing, tree or all", r.URL.Query().Get("lose")), http.StatusBadRequest)
		return
	}
	f.ensemble.Restart(loss)
	w.WriteHeader(http.StatusNoContent)
}
