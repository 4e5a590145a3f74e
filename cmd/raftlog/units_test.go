//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func TestParsePeer(t *testing.T) {
	for text, want := range map[string]api.Peer{
		"tcp://127.0.0.1:8047/foo": {ID: "foo", Addr: "127.0.0.1:8047"},
		"tcp://1.2.3.4:8047":       {ID: "1.2.3.4:8047", Addr: "1.2.3.4:8047"},
		"host.example:1/a/b":       {ID: "a/b", Addr: "host.example:1"},
		"[::1]:65535":              {ID: "[::1]:65535", Addr: "[::1]:65535"},
	} {
		p, err := parsePeer(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p)
		again, err := parsePeer(peerURL(p))
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
	for _, text := range []string{
		"", "a", "http://h:1", "h", "h:", "h:0", "h:65536", "h:x", ":1", "0.0.0.0:1/a", "[::]:1/a", "h:1/", "h:1/a b", "h:1/a,b", "h:1/\x1b", "tcp://",
	} {
		_, err := parsePeer(text)
		require.Equal(t, exitUsage, exitCode(err), "%q", text)
	}
}

func TestRanges(t *testing.T) {
	r, err := parseRanges("1-3,20,30-")
	require.NoError(t, err)
	for index, want := range map[uint64]bool{1: true, 3: true, 4: false, 19: false, 20: true, 21: false, 29: false, 30: true, 1 << 60: true} {
		require.Equal(t, want, r.has(index), index)
	}
	r, err = parseRanges("")
	require.NoError(t, err)
	require.True(t, r.has(7))
	for _, text := range []string{"0", "3-1", "a", "1,", "-3", "1-2-3", "1 -2"} {
		_, err := parseRanges(text)
		require.Equal(t, exitUsage, exitCode(err), "%q", text)
	}
}

// TestDefaultsAreWhatTheyAre: the file of raftlog defaults has every key, with its default.
func TestDefaultsAreWhatTheyAre(t *testing.T) {
	s := defaultSettings()
	require.NoError(t, parseSettings([]byte(defaults), &s))
	want := defaultSettings()
	want.Peers, want.AllowedNames = []filePeer{}, []string{}
	require.Equal(t, want, s)
	for i := range reflect.TypeFor[settings]().NumField() {
		key := reflect.TypeFor[settings]().Field(i).Tag.Get("yaml")
		require.Regexp(t, `(?m)^`+key+`: `, defaults, key)
		require.Contains(t, strings.Split(defaults, "\n"+key+": ")[0], "#", key)
	}
}

func TestParseSettings(t *testing.T) {
	s := defaultSettings()
	require.NoError(t, parseSettings([]byte("window: 1h30m\npeers: [ 'tcp://h:1/a', {addr: 'g:2', id: b} ]\ndir: /x/{id}\npeer-id: b\ncompact-file: y/{id}/z\n"), &s))
	s.place()
	require.Equal(t, 90*time.Minute, s.Window)
	require.Equal(t, []api.Peer{{ID: "a", Addr: "h:1"}, {ID: "b", Addr: "g:2"}}, s.peers())
	require.Equal(t, "/x/b", s.Dir)
	require.Equal(t, "y/b/z", s.CompactFile)
	require.NoError(t, parseSettings([]byte("# nothing\n"), &s))
	for text, want := range map[string]string{
		"cluster: a\nwindoww: 1h": "line 2: unknown key \"windoww\"",
		"\nwindow: long":          "line 2: the value is not a duration, such as 1s",
		"window: 5":               "line 1: the value is not a duration, such as 1s",
		"max-data: lots":          "line 1: the value is not a number",
		"peers: a":                "line 1: the value is not a list of peers",
		"peers: [a]":              "line 1: peer \"a\"",
		"peers:\n- {id: a, addr: 'h:1', port: 2}": "line 2: unknown key \"port\"",
		"peers:\n- {id: a}":                       "line 2",
		"peers: [[]]":                             "line 1",
		"cluster: a\ncluster: b":                  "line 2",
		"a: b\n---\nc: d":                         "unknown key",
		"cluster: a\n---\ncluster: d":             "exactly one YAML document",
		"secret: [" + secret + "]":                "line 1",
		"insecure: " + secret:                     "line 1: the value is not true or false",
		"secret: {a: \"" + secret + "\"}":         "line 1: the value is not one text",
		"- a":                                     "line 1: the value is not a mapping of keys",
	} {
		s := defaultSettings()
		err := parseSettings([]byte(text), &s)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), secret)
	}
}

func TestExitCodes(t *testing.T) {
	for want, errs := range map[int][]error{
		0:           {nil},
		exitUsage:   {usage("x"), fmt.Errorf("x: %w", fs.ErrNotExist)},
		exitExists:  {fmt.Errorf("%w", failure(exitExists, "x"))},
		exitFailed:  {errors.New("x"), api.ErrRefused, api.ErrStale},
		exitUnknown: {fmt.Errorf("%w: %w", api.ErrUnknownOutcome, io.EOF)},
		exitDamaged: {api.ErrFault, offline.ErrCorrupt, offline.ErrSnapshot, offline.ErrMalformed, offline.ErrDirectory},
	} {
		for _, err := range errs {
			require.Equal(t, want, exitCode(err), "%v", err)
		}
	}
	for _, code := range []int{
		0, exitFailed, exitUsage, exitDamaged, exitNobody, exitIdentity, exitMissing, exitExists, exitUnknown, exitNothing,
	} {
		require.Contains(t, exitHelp, fmt.Sprintf("\n  %-2d ", code))
	}
	for _, cmd := range newRoot().Commands() {
		require.Contains(t, cmd.Long, exitHelp, cmd.Name())
	}
}

// TestWrongUsage: a command line or a file that cannot work is rejected before a peer is contacted,
// with one line that contains a part of a correct command line. No peer runs here.
func TestWrongUsage(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "")
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	long := " -k secret-of-16-bytes"
	good := "serve -c " + file("cluster: c\npeers: ['h:1/a']\ndir: "+dir+"/none\n")
	key := func(text string) string {
		return "status -1 --insecure -c " + file("cluster: c\npeers: ['h:1/a']\n"+text+"\n")
	}
	for args, want := range map[string]string{
		"x":                             "see raftlog --help",
		"staus -1":                      "did you mean status?",
		"status --onse":                 "did you mean --once?",
		"serve a":                       "--peer-id a",
		"serve":                         "--peer-id a",
		good + long:                     "--peer-id a",
		good + long + " a":              "--peer-id a",
		good + " --peer-id a":           "--secret-file FILE",
		good + " --peer-id a -k secret": "head -c 32",
		good + long + " --peer-id z":    "--addr 10.0.0.1:8047",
		good + long + " --peer-id a --log-level loud": "one of debug",
		good + long + " --peer-id a --insecure":       "remove it",
		good + " --peer-id a --secret-file /nowhere":  "--secret-file: open /nowhere",
		good + " --peer-id a --ca-file /nowhere":      "belong together",
		good + long + " --peer-id a --addr h":         `addr "h": it is not of the form host:port, such as`,
		good + long + " --peer-id a --addr :1":        `addr ":1": it is not of the form host:port, such as`,
		good + long + " --peer-id a --listen h:x":     `listen "h:x": it is not of the form host:port, such as`,
		"serve -c /nowhere --peer-id a":               "-c: open /nowhere",
		key("election-timeout: 1ms"):                  "such as 1s",
		key("heartbeat: 1s"):                          "such as 0s",
		key("window: 1s"):                             "such as 7h",
		key("join-timeout: -1s"):                      "such as 1m",
		key("max-data: 0"):                            "such as 1048576",
		key("max-request-ids: -1"):                    "such as 20000000",
		key("addr: h"):                                "such as 10.0.0.1:8047",
		key("listen: h"):                              "such as 10.0.0.1:8047",
		key("peers: ['h:1/a', 'h:2/a']"):              "already defined",
		key("windov: 1h"):                             "see raftlog defaults",
		"status -1 --insecure -c " + file("cluster: c\npeers: ['h:1/a', 'h:2/a']"): "such as tcp://10.0.0.1:8047/a",
		"status -1 --insecure -c " + file("cluster: c\npeers: ['h:99999/a']"):      "an example is tcp://10.0.0.1:8047/a",
		"config":                              "--secret-file FILE",
		"config h:1 --insecure":               "--cluster NAME",
		"config --cluster c --insecure":       "such as 10.0.0.1:8047",
		"config --cluster c --insecure h":     "an example is tcp://10.0.0.1:8047/a",
		"config --add h:1 --replace h:2":      "--replace lists all peers",
		"config --add h":                      "an example is tcp://10.0.0.1:8047/a",
		"config --add=":                       "such as --add tcp://10.0.0.1:8047/a",
		"config --replace=":                   "such as --replace tcp://10.0.0.1:8047/a",
		"config --request-id 12":              "an example is",
		"config --wait 0s":                    "such as 2m",
		"config -t 0":                         "such as 2s",
		"config --nothing":                    "see raftlog config --help",
		"propose":                             "such as 'an update'",
		"propose a b":                         "such as 'an update'",
		"propose --request-id zz a":           "an example is",
		"tail --format xml --cluster c h:1":   "text, hex or json",
		"tail --cluster c -k short h:1":       "head -c 32",
		"status -i 1ms":                       "such as 1s",
		"compact":                             "such as -d /var/lib/raftlog",
		"compact -d /nowhere -t x":            "is not the directory of a peer",
		"compact -d /nowhere -t x --wait -1s": "an example is 1m",
		"dump":                                "such as /var/lib/raftlog",
		"dump -i x /nowhere":                  "an example is 1-10,20,30-",
		"dump /nowhere":                       "is not the directory of a peer",
		"dump --format x /nowhere":            "text, hex or json",
		"list /nowhere":                       "is not the directory of a peer",
		"inspect /nowhere":                    "no such file",
		"recover --addr h /nowhere":           "such as 10.0.0.1:8047",
		"restore -d x f":                      "such as --peer-id a",
		"restore -d x --peer-id a f":          "such as --addr 10.0.0.1:8047",
		"restore -d x --peer-id a --addr h f": "such as 10.0.0.1:8047",
		"restore -d x":                        "the file of raftlog export is missing",
		"defaults x":                          "unexpected argument",
		"list a b":                            "unexpected argument",
	} {
		var log strings.Builder
		require.Equal(t, exitUsage, execute(strings.Fields(args), nil, io.Discard, &log), "%s: %s", args, log.String())
		require.Regexp(t, "^raftlog: .*\n$", log.String(), args)
		require.Contains(t, log.String(), want, args)
	}
}

// createPeer makes dir the directory of peer a of cluster c.
func createPeer(t *testing.T, dir string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	self := api.Peer{ID: "a", Addr: listener.Addr().String()}
	node, err := raftlog.Open(raftlog.Config{Cluster: "c", ID: self.ID, Addr: self.Addr, Listener: listener, Dir: dir, Peers: []api.Peer{self}, Insecure: true})
	require.NoError(t, err)
	require.NoError(t, node.Close())
}

// TestOldDirectoryIsRejected fails if a command reads a directory of an earlier format, which
// contains records that it cannot decode, or if the error does not name the cause.
func TestOldDirectoryIsRejected(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "peer.json"), []byte(`{"format":2,"cluster":"c","peer":"a"}`), 0o600))
	var log strings.Builder
	require.Equal(t, exitDamaged, execute([]string{"list", dir}, nil, io.Discard, &log))
	require.Contains(t, log.String(), "format 2 of a version before the first release is not supported")
}

// TestCompactChecksTheTargetFirst: before it asks a peer, of which none runs here.
func TestCompactChecksTheTargetFirst(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	createPeer(t, dir)
	var log strings.Builder
	args := []string{"compact", "-d", dir, "-t", filepath.Join(dir, "peer.json"), "-p", "127.0.0.1:1", "--insecure"}
	require.Equal(t, exitUsage, execute(args, nil, io.Discard, &log), log.String())
	require.Contains(t, log.String(), "peer.json exists")
}

// TestWhatIsMissing: an error says how the very command is given what is missing.
func TestWhatIsMissing(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	bare := file("bare", "cluster: c\ninsecure: true\ndir: "+dir+"/{id}\n")
	createPeer(t, dir)
	for args, want := range map[string]string{
		"serve -c " + bare + " --addr h:1 --peer-id a":                                      "set peers in the file of -c",
		"serve --addr h:1 --peer-id a":                                                      "--cluster",
		"serve -c " + file("one", "cluster: c\npeers: [h:1/a]") + " --insecure --peer-id a": "set dir in the file of -c, or -d",
		"propose -c " + bare + " x":                                                         "set peers in the file of -c\n",
		"status -c " + bare:                                                                 "or give the address of one",
		"compact -c " + bare + " -d " + dir + " -t x":                                       "or give -p with an address",
		"compact -c " + bare + " -t x":                                                      "--peer-id a",
		"dump -c " + bare:                                                                   "--peer-id a",
		"list " + bare:                                                                      "is not the directory of a peer",
		"dump " + bare:                                                                      "is not the directory of a peer",
	} {
		var log strings.Builder
		require.Equal(t, exitUsage, execute(strings.Fields(args), nil, io.Discard, &log), "%s: %s", args, log.String())
		require.Contains(t, strings.ToLower(log.String()), strings.ToLower(want), args)
	}
}

func TestCauseHasRoomForAdvice(t *testing.T) {
	require.Equal(t, "connection refused", cause("asking a: dial tcp h:1: connection refused"))
	require.Equal(t, "it belongs to another cluster: check its name", cause("status of peer a: refused: it belongs to another cluster: check its name"))
}

func TestPlanned(t *testing.T) {
	a, b, c := api.Peer{ID: "a", Addr: "h:1"}, api.Peer{ID: "b", Addr: "h:2"}, api.Peer{ID: "h:3", Addr: "h:3"}
	now := []api.Peer{a, b, c}
	d := api.Peer{ID: "d", Addr: "h:4"}
	for _, text := range []string{"b", "h:2", "tcp://h:2", "h:2/b"} {
		got, err := planned(now, []api.Peer{d}, []string{text})
		require.NoError(t, err, text)
		require.Equal(t, []api.Peer{a, c, d}, got, text)
	}
	for _, text := range []string{"x", "h:9", "h:2/x", "h:9/b"} {
		_, err := planned(now, nil, []string{text})
		require.Equal(t, exitMissing, exitCode(err), text)
	}
	for _, p := range []api.Peer{a, {ID: "a", Addr: "h:9"}, {ID: "z", Addr: "h:1"}} {
		_, err := planned(now, []api.Peer{p}, nil)
		require.Equal(t, exitExists, exitCode(err), p)
	}
	_, err := planned(now, nil, []string{"a", "b", "h:3"})
	require.Equal(t, exitUsage, exitCode(err))
	require.Equal(t, []api.Peer{a, b, c}, now)
	require.True(t, inPlace(now, []api.Peer{a}, []string{"x", "h:9"}))
	require.False(t, inPlace(now, []api.Peer{a, d}, nil))
	require.False(t, inPlace(now, []api.Peer{{ID: "a", Addr: "h:9"}}, nil))
	require.False(t, inPlace(now, nil, []string{"x", "b"}))
}

func TestWhichSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	inFile := write("in-file", "of the secret file\r\n")
	file := write("config", "secret: given in the config\n")
	other := write("other", "secret-file: "+inFile+"\n")
	both := write("both", "secret: x\nsecret-file: "+inFile+"\n")
	for _, c := range []struct {
		a         access
		env, want string
	}{
		{access{file: file}, "", "given in the config"},
		{access{file: other}, "", "of the secret file"},
		{access{file: file}, "of the environment", "of the environment"},
		{access{file: other}, "of the environment", "of the environment"},
		{access{file: file, over: settings{SecretFile: inFile}}, "of the environment", "of the secret file"},
		{access{file: other, secret: "given by the flag", over: settings{SecretFile: "/nowhere"}}, "of the environment", "given by the flag"},
		{access{file: both}, "", ""},
		{access{over: settings{SecretFile: write("empty", "\n")}}, "", ""},
		{access{}, "", ""},
	} {
		t.Setenv(secretVariable, c.env)
		s, err := c.a.load()
		var got []byte
		if err == nil {
			got, _, err = s.proof()
		}
		if c.want == "" {
			require.Equal(t, exitUsage, exitCode(err), "%+v", c)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
	}
}

func TestPrintedEntries(t *testing.T) {
	e := api.Entry{
		Index: 7, Term: 2, Kind: api.KindState, ID: requestid.From(time.UnixMilli(1_700_000_000_000), 1, 2),
		Time: time.UnixMilli(1_700_000_000_500), Data: []byte("a\x1b[2J\n\xff"), Skipped: true,
	}
	no := false
	print := func(format string, e api.Entry, committed *bool) string {
		var b strings.Builder
		p, err := newPrinter(&b, format)
		require.NoError(t, err)
		require.NoError(t, p.entry(e, committed))
		require.Equal(t, 1, strings.Count(b.String(), "\n"))
		require.NotContains(t, b.String(), "\x1b")
		return b.String()
	}
	require.Equal(t, "7 term=2 STATE "+e.ID.String()+` 2023-11-14T22:13:20.500Z 7B skipped uncommitted? "a\x1b[2J\n\xff"`+"\n", print("text", e, &no))
	require.Contains(t, print("hex", e, nil), "7B skipped 611b5b324a0aff\n")
	require.Contains(t, print("json", e, nil), `"hex":"611b5b324a0aff"`)
	e.Data = []byte(`{"a":1}`)
	require.JSONEq(t, `{"index":7,"term":2,"kind":"STATE","id":"`+e.ID.String()+`","time":"2023-11-14T22:13:20.5Z","size":7,"data":"{\"a\":1}","skipped":true}`, print("json", e, nil))
	require.Equal(t, "8 term=3 CHECKPOINT - - 0B \"\"\n", print("text", api.Entry{Index: 8, Term: 3, Kind: api.KindCheckpoint}, nil))
}

func TestStatusTable(t *testing.T) {
	a, b := api.Peer{ID: "a", Addr: "h:1"}, api.Peer{ID: "b", Addr: "h:2"}
	r := report{Cluster: "c\x1b", Leader: &a, Peers: []peerReport{
		{Peer: a, Info: &api.Info{Peer: a, Role: "leader", Leader: a, Term: 3, CommitIndex: 12, SnapshotIndex: 5, SnapshotSize: 99, Fault: "x\ny"}},
		{Peer: b, Error: "asking b: dial: connection refused"},
	}}
	text := r.table()
	require.Equal(t, 4, strings.Count(text, "\n"), text)
	require.Contains(t, text, "leader a")
	require.Contains(t, text, "5 (99 B)")
	require.Contains(t, text, "connection refused")
	require.NotContains(t, text, "\x1b")
	var drawn strings.Builder
	require.NoError(t, r.print(&drawn, false, true))
	require.True(t, strings.HasPrefix(drawn.String(), toTop))
	require.True(t, strings.HasSuffix(drawn.String(), clearBelow))
	require.Equal(t, api.Peer{}, leaderOf(nil))
	require.Equal(t, b, leaderOf([]client.PeerInfo{
		{Info: api.Info{Leader: a, Term: 1}},
		{Info: api.Info{Leader: b, Term: 2}},
		{Info: api.Info{Term: 3}},
		{Err: io.EOF, Info: api.Info{Leader: a, Term: 9}},
	}))
}
