//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestDevServer_DerivesAddressesFromFlags checks that dev-server derives one address for each server from --listen
// and --servers, and rejects flags from which it cannot.
func TestDevServer_DerivesAddressesFromFlags(t *testing.T) {
	for _, c := range []struct {
		servers int
		listen  string
		want    string // the addresses, or a part of the error
	}{
		{1, "127.0.0.1:2181", "127.0.0.1:2181"},
		{3, "127.0.0.1:2181", "127.0.0.1:2181 127.0.0.1:2182 127.0.0.1:2183"},
		{3, "127.0.0.1:0", "127.0.0.1:0 127.0.0.1:0 127.0.0.1:0"},
		{3, "a:1,b:7,c:9", "a:1 b:7 c:9"},
		{4, "a:1,[::1]:7", "a:1 [::1]:7 [::1]:8 [::1]:9"},
		{0, "a:1", "--servers 0: an ensemble has at least one server"},
		{1, "a:1,b:2", "--listen a:1,b:2: 2 addresses for 1 servers; give at most one for each"},
		{2, "a:65535", "--listen a:65535: no ports are left for 2 servers"},
		{1, "a", "--listen a: not of the form host:port"},
		{1, "a:zk", "--listen a:zk: not of the form host:port"},
	} {
		d := devServer{servers: c.servers, listen: strings.Split(c.listen, ",")}
		got, err := d.addresses()
		if err != nil {
			require.Equal(t, cmdline.Usage, exitCode(err))
			require.Contains(t, err.Error(), c.want)
			continue
		}
		require.Equal(t, c.want, strings.Join(got, " "))
	}
}

// TestDevServer_RejectsInvalidFlags checks that dev-server reports flags with which no server can start as errors of
// usage.
func TestDevServer_RejectsInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--servers", "0"},
		{"--super", "user"},
		{"--tick", "0s"},
		{"--min-session-timeout", "2s", "--max-session-timeout", "1s"},
	} {
		p := start(t, append([]string{"dev-server"}, args...)...)
		require.Equal(t, cmdline.Usage, p.exitCode(), args)
	}
}

// TestDevServer_AppliesFlagsToServers checks that each flag of dev-server affects its servers.
func TestDevServer_AppliesFlagsToServers(t *testing.T) {
	srv := start(t, "dev-server", "--servers", "3", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0",
		"--tick", "50ms", "--min-session-timeout", "200ms", "--max-session-timeout", "5s", "--super", "root:pw", "--ttl=false")
	control := "http://" + srv.waitForOutput("control on ")[len("control on "):]
	addrs := srv.waitForOutput("listening on ")[len("listening on "):]
	second := start(t, "dev-server", "--listen", strings.Split(addrs, ",")[0])
	require.Equal(t, cmdline.Failed, second.exitCode(), "the address is in use")
	c, _, err := zk.Connect(strings.Split(addrs, ","), time.Minute, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.AddAuth("digest", []byte("root:pw")))
	data, _, err := c.Get("/zookeeper/config")
	require.NoError(t, err)
	for addr := range strings.SplitSeq(addrs, ",") {
		require.Contains(t, string(data), ";"+addr+"\n")
	}
	_, err = c.Create("/mine", nil, 0, zk.DigestACL(zk.PermAll, "other", "password"))
	require.NoError(t, err)
	_, err = c.Set("/mine", nil, -1)
	require.NoError(t, err, "the super user has no permission")
	_, err = c.CreateTTL("/ttl", nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), time.Hour)
	require.Error(t, err)
	var state ensembleState
	require.NoError(t, json.Unmarshal([]byte(fetch(t, "GET", control+"/state", http.StatusOK)), &state))
	require.Len(t, state.Sessions, 1)
	require.Equal(t, "5s", state.Sessions[0].Timeout)
	srv.terminate()
}

// fetch sends a request, requires a status, and returns the body of the response.
func fetch(t *testing.T, method, url string, status int) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	r.Header.Set(controlHeader, "1")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, status, response.StatusCode, "%s", body)
	return string(body)
}

// TestDevServer_InjectsRequestedFaults checks that each request to the control address injects or repairs the fault
// that it names, and that dev-server rejects invalid requests.
func TestDevServer_InjectsRequestedFaults(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	f, err := startFaultServer("127.0.0.1:0", e)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer f.close()
	url := "http://" + f.address
	post := func(path string) {
		t.Helper()
		fetch(t, "POST", url+path, http.StatusNoContent)
	}
	state := func() (s ensembleState) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(fetch(t, "GET", url+"/state", http.StatusOK)), &s))
		return s
	}

	conn, _, err := e.Server(0).Connect(time.Minute)
	require.NoError(t, err)
	_, err = conn.Create("/a", []byte("x"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	now := state()
	require.Len(t, now.Servers, 3)
	require.Equal(t, serverState{Number: 1, Address: e.Addrs()[0], Connections: 1}, now.Servers[0])
	require.True(t, now.Servers[2].Leader)
	require.Len(t, now.Sessions, 1)
	require.Equal(t, 1, now.Sessions[0].Server)
	require.Equal(t, []string{"/a"}, now.Sessions[0].Ephemerals)
	id := now.Sessions[0].ID

	require.Contains(t, fetch(t, "GET", url+"/tree", http.StatusOK), `a "x"`)
	require.Contains(t, fetch(t, "GET", url+"/", http.StatusOK), "/servers/N/lag")

	post("/servers/3/stop")
	require.False(t, state().Servers[2].Leader, "the server is still the leader")
	_, err = net.Dial("tcp", e.Addrs()[2])
	require.Error(t, err)
	post("/servers/3/start")
	nc, err := net.Dial("tcp", e.Addrs()[2])
	require.NoError(t, err)
	nc.Close()
	post("/servers/1/refuse")
	_, err = net.Dial("tcp", e.Addrs()[0])
	require.Error(t, err)
	post("/servers/1/accept")

	// A server that lags behind does not show a write that another server has accepted.
	later, _, err := e.Server(1).Connect(time.Minute)
	require.NoError(t, err)
	for i, path := range []string{"/servers/1/partition", "/servers/1/lag", "/servers/1/lag?by=1h", "/servers/1/pause"} {
		post(path)
		name := string(rune('b' + i))
		_, err = later.Create("/"+name, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		require.NotContains(t, e.Server(0).Tree(), "  "+name+"\n", path)
		if strings.HasSuffix(path, "pause") {
			post("/servers/1/resume")
		} else {
			post("/servers/1/heal")
		}
		require.Contains(t, e.Server(0).Tree(), "  "+name+"\n", path)
	}

	post("/servers/1/partition?session=" + id + "&session=0x1")
	post("/servers/1/heal?session=" + id)
	post("/servers/1/drop?session=" + id)
	post("/servers/2/drop")
	post("/sessions/" + id + "/expire")
	require.NotContains(t, e.Tree(), `a "x"`)
	post("/restart")
	require.Contains(t, e.Tree(), "  b\n")
	post("/restart?lose=tree")
	require.NotContains(t, e.Tree(), "  b\n")
	post("/restart?lose=all")

	for path, status := range map[string]int{
		"/servers/0/stop": http.StatusNotFound, "/servers/4/stop": http.StatusNotFound, "/servers/x/stop": http.StatusNotFound,
		"/servers/1/explode": http.StatusNotFound, "/sessions/0x1/expire": http.StatusNotFound,
		"/sessions/x/expire": http.StatusBadRequest, "/servers/1/heal?session=x": http.StatusBadRequest,
		"/servers/1/stop?session=1": http.StatusBadRequest, "/servers/1/lag?by=soon": http.StatusBadRequest,
		"/servers/1/lag?by=-1s": http.StatusBadRequest, "/restart?lose=everything": http.StatusBadRequest,
	} {
		require.NotEmpty(t, fetch(t, "POST", url+path, status), path)
	}
	_, err = startFaultServer(f.address, e)
	require.Error(t, err)
}
