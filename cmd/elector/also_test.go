//go:build unix && !no_etcd && !no_changefeed && !no_raftlog

package main

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestMigration_RunsOneInstanceAtATime checks that the programs of instances before, during and after a migration
// (--also) never run at the same time, and that an instance that leads on both backends can be succeeded by an
// instance of the current or the next step, and passes both fencing tokens to its program and commands.
func TestMigration_RunsOneInstanceAtATime(t *testing.T) {
	t.Parallel()
	zooKeeper, etcd := zktest.Start(t), dbserver.StartEtcd(t, dbserver.EtcdConfig{})
	h := newHarness(t, []string{"--election", "/jobs/one", "--session-timeout", sessionTimeout.String(), "--grace", "10ms"})
	oldOnly := []string{"--backend", "zookeeper", "--zookeeper-servers", zooKeeper.Addr()}
	newOnly := []string{"--backend", "etcd", "--etcd-endpoints", etcd.Addr(0), "--election", "/jobs/two"}
	h.requireMigration(oldOnly, slices.Concat(oldOnly, []string{"--also", "etcd", "--also-election", "/jobs/two", "--etcd-endpoints", etcd.Addr(0)}), newOnly)
}

// requireMigration runs one elector with the flags of the time before a migration, two with the flags during the
// migration, and one with the flags after it. It requires that their programs work one after another, and that the
// program and the commands during the migration receive the fencing tokens of both backends.
func (h *harness) requireMigration(oldOnly, moving, newOnly []string) {
	h.Helper()
	a := h.lead("a", stubborn, oldOnly...)
	b := h.follow("b", stubborn, moving...)
	const tokens = `echo "$ELECTOR_ROLE $ELECTOR_TOKEN,$ELECTOR_ALSO_TOKEN."`
	a.terminate()
	b.waitForOutput("works")
	c := h.follow("c", tokens+"; "+stubborn, slices.Concat(moving, []string{"--leader-end-command", tokens})...)
	b.signal(syscall.SIGKILL)
	program := c.waitForOutput("leader")
	require.Regexp(h, `^leader [1-9][0-9]*,[1-9][0-9]*\.$`, program)
	c.waitForOutput("works")
	d := h.follow("d", stubborn, newOnly...)
	c.terminate()
	require.Equal(h, program, c.waitForOutput("leader"), "the end command")
	d.waitForOutput("works")
	h.requireOrder("a", "b", "c", "d")
}

// TestMigration_KeepsSettingsOfBackendsApart checks that an instance does not use settings of one backend, such as
// the password, for the other backend, and that the programs of instances before, during and after the migration
// never run at the same time.
func TestMigration_KeepsSettingsOfBackendsApart(t *testing.T) {
	t.Parallel()
	postgres := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres() })
	redis := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Redis("--requirepass", "first password") })
	other := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Redis("--requirepass", "second password") })
	zooKeeper, otherZooKeeper := zktest.Start(t), zktest.Start(t)
	// The server does not sync its data to the disk.
	inPostgres := "backend: changefeed\nstore: postgres://postgres@" + postgres.Addr() + "/postgres?unsafe=power-loss\n"
	inRedis := "backend: changefeed\nstore: redis://" + redis.Addr() + "\nstore-password: first password\n"
	for name, c := range map[string]struct{ first, second string }{
		"postgres to redis": {inPostgres, inRedis},
		"redis to postgres": {inRedis, inPostgres},
		"redis to redis":    {inRedis, "store: redis://" + other.Addr() + "\nstore-password: second password\n"},
		"zookeeper to zookeeper": {
			"zookeeper-servers: " + zooKeeper.Addr() + "\nzookeeper-auth: user:first\n",
			"zookeeper-servers: " + otherZooKeeper.Addr() + "\nzookeeper-auth: user:second\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			election := "/jobs/" + strings.ReplaceAll(name, " ", "-")
			first := writeConfigFile(t, c.first+"grace: 10ms\nelection: "+election+"\n")
			second := writeConfigFile(t, c.second+"grace: 10ms\nsession-timeout: 5s\nelection: "+election+"/new\n")
			newHarness(t, nil).requireMigration(
				[]string{"--config", first}, []string{"--config", first, "--also", second}, []string{"--config", second})
		})
	}
}

// TestMigration_MovesElectionToRaftlog checks that instances that migrate to raftlog run their peers already before
// they lead, and that the migration ends when instances that use only raftlog have replaced the others one by one.
func TestMigration_MovesElectionToRaftlog(t *testing.T) {
	t.Parallel()
	h := newRaftlogHarness(t)
	oldOnly := []string{"--backend", "zookeeper", "--zookeeper-servers", zktest.Start(t).Addr(), "--election", "/one"}
	first := h.lead("first", stubborn, oldOnly...)
	all := h.runAll(stubborn, append(oldOnly, "--also", "raftlog", "--also-election", "one")...)
	// Wait until a majority of the peers answers. There is no leader on raftlog yet.
	h.command("status", "--timeout", "1m").requireExit(cmdline.NoLeader)
	first.terminate()
	leader := h.waitForLeader(all)
	waiting := processesExcept(all, leader)
	for name, p := range waiting {
		p.terminate()
		waiting[name] = h.follow(name, stubborn)
	}
	all[leader].terminate()
	h.waitForLeader(waiting)
}

// TestCombineBackends_ReportsLossOfEitherBackend checks that the combination of two backends reports the loss of
// either backend. A second backend whose peers run inside the electors is not required before its other peers have
// started.
func TestCombineBackends_ReportsLossOfEitherBackend(t *testing.T) {
	errFirst, errSecond := errors.New("first"), errors.New("second")
	lost, noMajority := error(nil), errSecond
	first := backend{connected: func() error { return lost }}
	second := backend{connected: func() error { return noMajority }}
	a := &migrationFlags{second: &settings{}}
	require.ErrorIs(t, a.combineBackends(&settings{}, first, second).connected(), errSecond, "a second backend that has servers")
	second.start = func() error { return nil }
	peer := a.combineBackends(&settings{}, first, second)
	require.NoError(t, peer.connected(), "the other peers do not run yet")
	lost = errFirst
	require.ErrorIs(t, peer.connected(), errFirst)
	lost, noMajority = nil, nil
	require.NoError(t, peer.connected())
	noMajority = errSecond
	require.ErrorIs(t, peer.connected(), errSecond, "the peers were connected")
}

// TestMigration_RejectsSameElectionAtOtherAddress checks that an instance does not join one election twice if --store
// and the file of --also address the same store by different names.
func TestMigration_RejectsSameElectionAtOtherAddress(t *testing.T) {
	t.Parallel()
	srv := redisServer.Get(t)
	h := newHarness(t, []string{"--store", "redis://" + srv.Addr(), "--election", "jobs/same", "--session-timeout", "5s", "--grace", "10ms"})
	same := writeConfigFile(t, "store: redis://localhost:"+srv.Port()+"\nelection: /jobs/same\n")
	early := h.run("early", graceful, "--also", same) // this instance starts before the election exists
	early.requireExit(cmdline.Usage, "contains the election of --store")
	a := h.lead("a", graceful)
	b := h.run("b", graceful, "--also", same)
	b.requireExit(cmdline.Usage, "contains the election of --store")
	require.NotContains(t, b.log.Text(), "follower", "b has joined")
	a.terminate()
}

// TestSameElection_ComparesServersAndNames checks that sameElection recognizes two settings of one election even if
// the servers are written differently, and distinguishes elections by server and name.
func TestSameElection_ComparesServersAndNames(t *testing.T) {
	parsed := func(args ...string) *settings {
		s, _, err := parse(t, append([]string{"run"}, args...)...)
		require.NoError(t, err)
		return s
	}
	for _, c := range []struct {
		backend, flag, first, second string
		same                         bool
	}{
		{"zookeeper", "--zookeeper-servers", "zk1,zk2", "zk3:2181,ZK2:2181", true},
		{"zookeeper", "--zookeeper-servers", "zk1,zk2", "zk2:2182", false},
		{"etcd", "--etcd-endpoints", "etcd1:2379", "https://etcd2:2379, https://etcd1:2379", true},
		{"etcd", "--etcd-endpoints", "etcd1:2379", "etcd2:2379", false},
		{"raftlog", "--peers", "a=h1:1,b=h2:1", "c=h2:1", true},
		{"raftlog", "--peers", "a=h1:1,b=h2:1", "a=h1:2,b=h2:2", false},
		{"changefeed", "--store", "postgres://db/jobs", "postgres://db/jobs?table=new", false},
		{"changefeed", "--store", "kubernetes://jobs", "kubernetes://jobs", true},
	} {
		first := parsed("--backend", c.backend, "--election", "/jobs", c.flag, c.first)
		require.Equal(t, c.same, sameElection(first, parsed("--backend", c.backend, "--election", "/jobs", c.flag, c.second)), c)
		require.False(t, sameElection(first, parsed("--backend", c.backend, "--election", "/other", c.flag, c.first)), c)
	}
	require.False(t, sameElection(parsed("--backend", "console"), parsed("--backend", "console")))
}

// TestMigration_RejectsInvalidFileOfSecondBackend checks that elector rejects an invalid file of --also, with an
// error that contains the name of the file and the setting.
func TestMigration_RejectsInvalidFileOfSecondBackend(t *testing.T) {
	t.Parallel()
	srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Redis("--appendonly", "no", "--save", "3600 1") })
	addr := redisServer.Get(t).Addr()
	for text, c := range map[string]struct {
		code int
		file string
		args []string
	}{
		"in which keys replace the flags of this backend: --store is required: ": {cmdline.Usage, "backend: changefeed\nelection: jobs", nil},
		"unknown key \"storre\"":                                          {cmdline.Usage, "storre: redis://db", nil},
		"the file must contain the name of the election":                  {cmdline.Usage, "store: redis://db", nil},
		"the file contains the key \"also\"":                              {cmdline.Usage, "store: redis://db\nelection: jobs\nalso: etcd", nil},
		"the file contains the key \"also-election\"":                     {cmdline.Usage, "store: redis://db\nelection: jobs\nalso-election: jobs", nil},
		"omit the flag":                                                   {cmdline.Usage, "store: redis://db\nelection: jobs", []string{"--also-election", "jobs"}},
		"the settings of --backend changefeed already name this election": {cmdline.Usage, "store: redis://" + addr + "\nelection: jobs/files", nil},
		"--value: backend changefeed":                                     {cmdline.Usage, "store: redis://db\nelection: jobs", []string{"--value", "v", "--backend", "zookeeper", "--zookeeper-servers", "127.0.0.1:1", "--election", "/jobs"}},
		"is store-unsafe: restart":                                        {cmdline.Permanent, "store: redis://" + srv.Addr() + "\nelection: jobs", nil},
	} {
		file := writeConfigFile(t, c.file)
		p := start(t, slices.Concat([]string{"run", "--store", "redis://" + addr, "--election", "jobs/files", "--also", file}, c.args, []string{"--", "true"})...)
		p.requireExit(c.code, text)
		require.Contains(t, p.log.Text(), file)
		require.NotContains(t, p.log.Text(), "for example --also etcd")
	}
}

// TestMigration_NamesFileAndLineOfInvalidPeer checks that an error about a raftlog peer that the file of --also
// configures names the file and the line.
func TestMigration_NamesFileAndLineOfInvalidPeer(t *testing.T) {
	t.Parallel()
	srv := redisServer.Get(t)
	for id, c := range map[string]struct {
		code int
		text string
		line string
	}{
		"b": {cmdline.Usage, "--peer-id b: not one of --peers", ":3"},
		"a": {cmdline.Failed, "--peers, --peer-listen: this peer cannot listen on " + srv.Addr(), ":2"}, // this address belongs to the Redis server
	} {
		file := writeConfigFile(t, "backend: raftlog\npeers: [a="+srv.Addr()+"]\npeer-id: "+id+"\ndir: "+t.TempDir()+"\ninsecure: true\nelection: report\n")
		p := start(t, "run", "--store", "redis://"+srv.Addr(), "--election", "jobs/peers", "--also", file, "--", "true")
		p.requireExit(c.code, c.text)
		require.Contains(t, p.log.Text(), "--also "+file+", in which keys replace the flags")
		require.Contains(t, p.log.Text(), file+c.line)
	}
}

// TestMigration_WaitsForProgramIfElectionEnds checks that an instance of the next step of a migration does not start
// its program while the former leader is still stopping its program. The former leader has lost the first election,
// which was ended, before its lease has expired.
func TestMigration_WaitsForProgramIfElectionEnds(t *testing.T) {
	t.Parallel()
	etcd := dbserver.StartEtcd(t, dbserver.EtcdConfig{})
	h := newZooKeeperHarness(t)
	newOnly := []string{"--backend", "etcd", "--etcd-endpoints", etcd.Addr(0), "--election", "/jobs/two"}
	a := h.lead("a", stubborn, "--also", "etcd", "--also-election", "/jobs/two", "--etcd-endpoints", etcd.Addr(0))
	b := h.follow("b", stubborn, newOnly...)
	h.command("end").requireExit(cmdline.OK)
	a.requireExit(cmdline.Permanent)
	b.waitForOutput("works")
	h.requireOrder("a", "b")
}

// TestMigration_AdvisesSettingsOfFailedBackend checks that the advice about an error of the second backend names
// settings of that backend, and not settings of the first.
func TestMigration_AdvisesSettingsOfFailedBackend(t *testing.T) {
	t.Parallel()
	srv := zktest.Start(t)
	conn, _, err := srv.Connect(sessionTimeout)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Create("/protected", nil, 0, append(zk.DigestACL(zk.PermAll, "user", "password"), zk.WorldACL(zk.PermRead)...))
	require.NoError(t, err)
	p := start(t, "run", "--backend", "changefeed", "--store", "redis://"+redisServer.Get(t).Addr(), "--election", "jobs/advice", "--session-timeout", "2s",
		"--also", "zookeeper", "--also-election", "/protected", "--zookeeper-servers", srv.Addr(), "--", "true")
	p.requireExit(cmdline.Permanent, "there are no credentials: set ELECTOR_ZOOKEEPER_AUTH")
}

// TestMigration_ReportsUnreadableFileWithoutExample checks that the error for an unreadable file of --also contains
// neither an example of --also nor a description of the file format, because neither is the cause.
func TestMigration_ReportsUnreadableFileWithoutExample(t *testing.T) {
	p := start(t, "run", "--zookeeper-servers", "x", "--also", t.TempDir(), "--", "true")
	p.requireExit(cmdline.Usage, "is not a regular file")
	require.NotRegexp(t, "the form of --config|for example", p.log.Text())
}

// TestMigration_WarnsOfVariablesThatOverrideFile checks that elector warns of each environment variable that would
// override a key of the --also file after the migration, does not warn of other variables, and logs no values.
func TestMigration_WarnsOfVariablesThatOverrideFile(t *testing.T) {
	file := writeConfigFile(t, "etcd-endpoints: [etcd1:2379, etcd2:2379]\nelection: /jobs/new\nsession-timeout: 5s\n")
	t.Setenv("ELECTOR_KEY", "/jobs/old")
	t.Setenv("ELECTOR_ETCD_ENDPOINTS", "etcd1:2379,etcd2:2379")
	t.Setenv("ELECTOR_GRACE", "2s")
	p := start(t, "config", "--backend", "zookeeper", "--zookeeper-servers", "x", "--also", file, "--", "true")
	p.requireExit(cmdline.OK, "variable=ELECTOR_KEY key=election")
	require.Equal(t, 1, strings.Count(p.log.Text(), "has precedence"), p.log.Text())
	require.NotContains(t, p.log.Text(), "/jobs")
}

// TestMigration_RejectsInvalidSettings checks that elector rejects invalid settings of a migration, with an error
// that names the flag.
func TestMigration_RejectsInvalidSettings(t *testing.T) {
	for text, args := range map[string][]string{
		"--also zookeeper: --backend already names this backend": {"--also", "zookeeper"},
		"--also paper: not one of this build's backends":         {"--also", "paper"},
		"--also-election /jobs/two requires --also":              {"--also-election", "/jobs/two"},
		`--also-election: invalid argument: path "report" does not begin with a slash; for example --also-election /`: {
			"--backend", "changefeed", "--store", "nats://127.0.0.1:1", "--election", "report", "--also", "zookeeper",
		},
		"--etcd-endpoints": {"--also", "etcd"},
		"--value: backend changefeed cannot advertise a value": {"--also", "changefeed", "--store", "memory:x", "--value", "v"},
	} {
		all := slices.Concat([]string{"run", "--backend", "zookeeper", "--zookeeper-servers", "127.0.0.1:1"}, args, []string{"--", "true"})
		p := start(t, all...)
		p.requireExit(cmdline.Usage)
		p.waitForLog(text)
	}
}
