package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// controlHelp is the answer to GET / of the dev-server's control address.
const controlHelp = `GET  /state                     servers and sessions, as JSON
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

// control serves the faults of an ensemble over HTTP.
type control struct {
	ensemble *zktest.Ensemble
	addr     string // empty without --control
	server   *http.Server
	served   sync.WaitGroup
}

// startControl listens on addr, unless it is empty.
func startControl(addr string, e *zktest.Ensemble) (*control, error) {
	c := &control{ensemble: e}
	if addr == "" {
		return c, nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	c.addr = ln.Addr().String()
	c.server = &http.Server{Handler: c.handler(), ReadHeaderTimeout: 10 * time.Second}
	c.served.Go(func() { _ = c.server.Serve(ln) })
	return c, nil
}

func (c *control) close() {
	if c.server != nil {
		_ = c.server.Close()
		c.served.Wait()
	}
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, controlHelp) })
	mux.HandleFunc("GET /tree", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.ensemble.Tree()) })
	mux.HandleFunc("GET /state", c.state)
	mux.HandleFunc("POST /sessions/{id}/expire", c.expire)
	mux.HandleFunc("POST /servers/{number}/{action}", c.act)
	mux.HandleFunc("POST /restart", c.restart)
	return mux
}

type stateAnswer struct {
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
	Server     int      `json:"server"` // 0 if it is not connected
	Ephemerals []string `json:"ephemerals"`
}

func (c *control) state(w http.ResponseWriter, _ *http.Request) {
	answer := stateAnswer{Sessions: []sessionState{}}
	leader := c.ensemble.Leader()
	for i := range c.ensemble.Len() {
		s := c.ensemble.Server(i)
		answer.Servers = append(answer.Servers, serverState{i + 1, s.Addr(), s == leader, s.Connections()})
	}
	for _, s := range leader.Sessions() {
		answer.Sessions = append(answer.Sessions, sessionState{
			fmt.Sprintf("%#x", s.ID), s.Timeout.String(), s.ExpiresIn.String(), s.Server + 1, append([]string{}, s.Ephemerals...),
		})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (c *control) expire(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 0, 64)
	if err != nil {
		http.Error(w, fmt.Sprintf("session %q: not a number such as 0x10001", r.PathValue("id")), http.StatusBadRequest)
		return
	}
	if err := c.ensemble.Leader().ExpireSession(id); err != nil {
		http.Error(w, fmt.Sprintf("session %#x: %v", id, err), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// act makes or ends a fault of one server.
func (c *control) act(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil || number < 1 || number > c.ensemble.Len() {
		http.Error(w, fmt.Sprintf("server %q: the servers are 1 to %d", r.PathValue("number"), c.ensemble.Len()), http.StatusNotFound)
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
	s, action := c.ensemble.Server(number-1), r.PathValue("action")
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

// restart restarts all servers, with the loss that the request names.
func (c *control) restart(w http.ResponseWriter, r *http.Request) {
	loss, ok := map[string]zktest.Loss{"": zktest.KeepTree, "nothing": zktest.KeepTree, "tree": zktest.LoseTree, "all": zktest.LoseAll}[r.URL.Query().Get("lose")]
	if !ok {
		http.Error(w, fmt.Sprintf("lose=%s: it must be nothing, tree or all", r.URL.Query().Get("lose")), http.StatusBadRequest)
		return
	}
	c.ensemble.Restart(loss)
	w.WriteHeader(http.StatusNoContent)
}
