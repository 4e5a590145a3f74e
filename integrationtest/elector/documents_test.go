//go:build linux

package elector

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
)

// example describes how a command line of the documentation is tested. Exactly one of the fields
// backends, testedBy and notRun is set.
type example struct {
	backends []string // the backends on which TestDocuments_CommandsDoWhatPageDescribes runs the line, because the page claims that it works there
	prints   string   // the output must contain this text
	until    string   // the command is terminated as soon as it has printed this text
	alone    bool     // whether the election has no other candidate

	testedBy string // the test that runs the same line, or the program in the line
	notRun   string // the reason why the line cannot be run here
}

var (
	zookeeper   = []string{"zookeeper"}
	allBackends = []string{"zookeeper", "etcd", "postgres", "mysql", "redis", "nats", "raftlog"}
	resigning   = []string{"zookeeper", "etcd", "raftlog"}
	storeURLs   = []string{"postgres", "mysql", "redis", "nats"}
)

// notRunOn contains the backends on which no test runs the command lines, each with the reason.
var notRunOn = map[string]string{
	"kubernetes": "make kubernetes runs the tests of Leases",
	"mongodb":    needsServer,
	"rethinkdb":  needsServer,
}

const needsServer = "Debian does not package the server"

const needsCluster = "needs the controllers of a cluster of Kubernetes, not only its API server"

const needsHost = "changes the host, or needs an image from a registry"

// examples contains the command lines of the documentation. Comments and repeated spaces are removed, and continued
// lines are joined.
var examples = map[string]example{
	"elector run --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --election /jobs/report -- report --serve": {backends: zookeeper, alone: true, prints: "report --serve"},
	"elector run --zookeeper-servers zk1,zk2,zk3 --election /jobs/report -- /usr/local/bin/report":              {backends: zookeeper, alone: true, prints: "report"},
	"elector run --backend changefeed --store ADDRESS --election report -- report --serve":                      {backends: storeURLs, alone: true, prints: "report --serve"},
	"elector run --backend etcd --etcd-endpoints etcd1:2379 --election /jobs/report -- report --serve":          {backends: []string{"etcd"}, alone: true, prints: "report --serve"},
	"elector run --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --election /address " +
		"--leader-begin-command 'ip addr add 10.0.0.9/24 dev eth0' --leader-end-command 'ip addr del 10.0.0.9/24 dev eth0 || true'": {
		backends: zookeeper, alone: true, until: "ip addr add 10.0.0.9/24 dev eth0", prints: "ip addr del 10.0.0.9/24 dev eth0",
	},
	`elector run ... --leader-begin-command 'configure-primary' --follower-command 'configure-replica-of "$ELECTOR_LEADER"'`: {
		backends: allBackends, until: "configure-replica-of web-1",
	},
	"elector status ... --wait --timeout 1m":                                 {backends: allBackends, prints: "web-1"},
	"elector status ... --is-leader web-1 && backup":                         {backends: allBackends, prints: "backup"},
	"elector status --election /jobs/report ...":                             {backends: allBackends, prints: "web-1"},
	"elector status --zookeeper-servers zk1,zk2,zk3 --election /jobs/report": {backends: zookeeper, prints: "web-1"},
	"elector watch --zookeeper-servers zk1,zk2,zk3 --election /jobs/report":  {backends: zookeeper, until: "web-1"},
	"elector config ...":                         {backends: allBackends, prints: "election: "},
	"elector doctor --election /jobs/report ...": {backends: zookeeper, prints: "the servers grant the timeout of "},
	"elector resign --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --election /jobs/report": {backends: zookeeper, prints: "web-1"},
	"elector resign ... --id web-1 --timeout 5m":                                                 {backends: resigning, prints: "web-1"},
	"elector top --backend zookeeper --zookeeper-servers zk1,zk2,zk3 /jobs/report /jobs/clean":   {backends: zookeeper, until: "web-1"},
	"elector top --zookeeper-servers zk1,zk2,zk3 --under /jobs":                                  {backends: zookeeper, until: "web-1"},
	"elector top ... --under /jobs":                                                              {backends: zookeeper, until: "web-1"},

	"elector run --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --election /jobs/report --also etcd --etcd-endpoints etcd1:2379 -- report --serve":                            {testedBy: "TestMigration_RunsOneInstanceAtATime"},
	"elector run --backend changefeed --store kubernetes://jobs --election report --also zookeeper --also-election /jobs/report --zookeeper-servers zk1,zk2,zk3 -- report --serve": {notRun: "TestMigration_RunsOneInstanceAtATime runs the same with other backends; this one needs a cluster"},
	"elector run --config postgres.yaml -- report --serve":                           {testedBy: "TestMigration_KeepsSettingsOfBackendsApart"},
	"elector run --config postgres.yaml --also redis.yaml -- report --serve":         {testedBy: "TestMigration_KeepsSettingsOfBackendsApart"},
	"elector run --config redis.yaml -- report --serve":                              {testedBy: "TestMigration_KeepsSettingsOfBackendsApart"},
	"kubectl apply --dry-run=server --validate=strict -k DIRECTORY":                  {testedBy: "TestManifests_AreAcceptedByAPIServer"},
	"kubectl rollout status deployment/report":                                       {notRun: needsCluster},
	"kubectl wait --for=delete pod --selector='app=report,version!=2' --timeout=10m": {notRun: needsCluster},

	"elector doctor --zookeeper-servers zk1,zk2,zk3 --election /jobs/report -- report --serve": {testedBy: "TestDoctor_ReportsFindingsAndLeavesNoZnode"},

	"elector dev-server": {testedBy: "TestDocuments_DevServerLinesWork"},
	"elector dev-server --servers 3 --listen 127.0.0.1:2181 --tick 2s --control 127.0.0.1:2180": {testedBy: "TestDocuments_DevServerLinesWork"},
	"curl -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/sessions/0x20051e4d2b000001/expire":   {testedBy: "TestDocuments_DevServerLinesWork"},
	"curl -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/servers/1/partition":                  {testedBy: "TestDocuments_DevServerLinesWork"},
	"curl -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/servers/1/heal":                       {testedBy: "TestDocuments_DevServerLinesWork"},
	"curl -i http://host:8080/readyz":                                                           {testedBy: "TestWebServer_PagesFollowHandOver"},
	"curl -i http://host:8080/leader":                                                           {testedBy: "TestWebServer_PagesFollowHandOver"},
	"curl -i http://127.0.0.1:8081/leader":                                                      {testedBy: "TestWebServer_PagesFollowHandOver"},

	"raftlog serve -c /etc/raftlog.yaml --peer-id a":                      {testedBy: "TestDocuments_RaftlogLinesWork"},
	"id=$(raftlog new-id)":                                                {testedBy: "TestDocuments_RaftlogLinesWork"},
	`raftlog propose -c /etc/raftlog.yaml --request-id "$id" 'an update'`: {testedBy: "TestDocuments_RaftlogLinesWork"},
	"raftlog config -c /etc/raftlog.yaml --delete c":                      {testedBy: "TestDocuments_RaftlogLinesWork"},

	`zkCli.sh create /config "" ; zkCli.sh create /config/limit 10`: {testedBy: "TestTasks_ProgramsDoWhatTheirPagesDescribe"},
	"zkCli.sh set /config/limit 20":                                 {testedBy: "TestTasks_ProgramsDoWhatTheirPagesDescribe"},

	"docker build -t elector -f examples/elector/container/Containerfile examples/elector/container": {notRun: needsHost},
	"docker compose up -d":                                                                           {notRun: needsHost},
	"docker compose run --rm elector status":                                                         {notRun: needsHost},
	"docker compose logs -f elector":                                                                 {notRun: needsHost},
	`install -m 0755 "$(go env GOPATH)/bin/elector" /usr/local/bin/elector`:                          {notRun: needsHost},
	"install -D -m 0644 examples/elector/systemd/report.yaml /etc/elector/report.yaml":               {notRun: needsHost},
	"install -D -m 0644 examples/elector/systemd/report.service /etc/systemd/system/report.service":  {notRun: needsHost},
	"systemd-analyze verify /etc/systemd/system/report.service":                                      {testedBy: "TestDocuments_SystemdAcceptsUnits"},
	"systemd-analyze verify /etc/systemd/system/invoices.service /etc/systemd/system/invoices.timer": {testedBy: "TestDocuments_SystemdAcceptsUnits"},
	"systemctl enable --now invoices-check.timer":                                                    {notRun: needsHost},
	"systemctl enable --now invoices.timer":                                                          {notRun: needsHost},
	"systemctl enable --now report":                                                                  {notRun: needsHost},
}

// commandLine is a command line in a code block of a document.
type commandLine struct{ document, text string }

// readCommandLines returns the lines of code blocks in the documentation that begin with one of the given programs.
func readCommandLines(t *testing.T, programs ...string) (lines []commandLine) {
	t.Helper()
	out, err := exec.Command("git", "-C", "../..", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("the repository is not a git checkout:", err)
	}
	comment, variable, spaces := regexp.MustCompile(`(^|\s)#.*`), regexp.MustCompile(`^([A-Z_]+=\S* )+`), regexp.MustCompile(`\s+`)
	for document := range strings.FieldsSeq(string(out)) {
		if document == "CHANGELOG.md" || strings.HasPrefix(document, "docs/commands/") {
			continue // this page is generated from the help texts of the commands
		}
		text, err := os.ReadFile(filepath.Join("../..", document))
		require.NoError(t, err)
		fence := "" // the language of the current block of code; empty outside of blocks
		for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", ""), "\n") {
			if language, ok := strings.CutPrefix(line, "```"); ok {
				if fence == "" {
					fence = language + "."
				} else {
					fence = ""
				}
				continue
			}
			if !strings.HasPrefix(line, "    ") && !slices.Contains([]string{"sh.", "console.", "."}, fence) {
				continue
			}
			line = strings.TrimSpace(spaces.ReplaceAllString(comment.ReplaceAllString(line, ""), " "))
			program, _, _ := strings.Cut(variable.ReplaceAllString(line, ""), " ")
			if slices.Contains(programs, program) {
				lines = append(lines, commandLine{document, line})
			}
		}
	}
	require.NotEmpty(t, lines)
	return lines
}

// TestDocuments_CommandLinesAreTestedOrListed checks that the table of examples lists each command line of the
// documentation, with its test or the reason why it is not tested, and that each line of the table occurs in the
// documentation.
func TestDocuments_CommandLinesAreTestedOrListed(t *testing.T) {
	missing := maps.Clone(examples)
	programs := []string{"elector", "raftlog", "id=$(raftlog", "curl", "zkCli.sh", "docker", "install", "systemctl", "systemd-analyze", "psql", "kubectl", "etcdctl", "redis-cli"}
	for _, line := range readCommandLines(t, programs...) {
		if line.document == accessPage {
			continue // TestDocuments_AccessCommandsProtectElection runs the blocks of this page
		}
		assert.Contains(t, examples, line.text, line.document)
		delete(missing, line.text)
	}
	assert.Empty(t, missing, "not in the documentation")
	stores, err := filepath.Glob("../../adapters/changefeed/*/go.mod")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/changefeed-stores.md")
	require.NoError(t, err)
	for _, store := range stores {
		name := filepath.Base(filepath.Dir(store))
		if name != "storeurl" && notRunOn[name] == "" {
			assert.Contains(t, allBackends, name, "a store on which no command line is run, without a reason")
		}
	}
	assert.Regexp(t, `not\srun on RethinkDB, MongoDB and Kubernetes`, string(page))
	assert.Len(t, notRunOn, 3, "the page names three backends")
	for line, e := range examples {
		if e.testedBy != "" {
			assert.NoError(t, exec.Command("git", "-C", "../..", "grep", "--untracked", "-qw", "func "+e.testedBy).Run(), "%s: %s", line, e.testedBy)
		}
	}
}

// TestDocuments_GoAndMakeLinesNameExistingTargets checks that the targets, packages and tests exist that the
// documentation names in command lines for make and go.
func TestDocuments_GoAndMakeLinesNameExistingTargets(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	var (
		directory = regexp.MustCompile(`^cd (\S+) && `)
		pattern   = regexp.MustCompile(`-run (?:'([^']*)'|(\S+))`)
		packages  = regexp.MustCompile(`(?:^| )(\./\S*|\.)(?: |$)`)
		published = regexp.MustCompile(`github\.com/go-leaderelection/leaderelection(\S*?)(@latest)?$`)
	)
	for _, line := range readCommandLines(t, "go", "make", "cd", "git") {
		_, target, isMake := strings.Cut(line.text, "make ")
		if isMake {
			target, _, _ = strings.Cut(target, " ")
			assert.Contains(t, string(makefile), "\n"+target+":", line)
			continue
		}
		if found := published.FindStringSubmatch(line.text); found != nil {
			assert.DirExists(t, "../.."+found[1], line)
			continue
		}
		dir := "../.."
		if strings.HasPrefix(line.document, "examples/") || strings.HasPrefix(line.document, "docs/tasks/") || line.document == "docs/getting-started.md" {
			continue // skip programs that the reader writes; the tests of examples run these programs
		}
		if found := directory.FindStringSubmatch(line.text); found != nil {
			dir = filepath.Join(dir, found[1])
		}
		args, _, _ := strings.Cut(line.text, " -args")
		for _, found := range packages.FindAllStringSubmatch(args, -1) {
			assert.DirExists(t, filepath.Join(dir, strings.TrimSuffix(found[1], "/...")), line)
		}
		if found := pattern.FindStringSubmatch(args); found != nil && found[1] != "^$" {
			tests := exec.Command("git", "-C", dir, "grep", "-qE", "func Test[A-Za-z0-9_]*("+strings.TrimPrefix(found[1]+found[2], "Test")+")", "--", "*_test.go")
			assert.NoError(t, tests.Run(), line)
		}
	}
}

// TestDocuments_SystemdAcceptsUnits checks that systemd accepts each unit file of the documentation, and that elector
// accepts the configuration of the systemd example.
func TestDocuments_SystemdAcceptsUnits(t *testing.T) {
	bin := newBinDirectory(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		testenv.SkipMissing(t, "systemd", err)
	}
	for dir, want := range map[string]int{"elector/systemd": 1, "tasks/leader": 1, "tasks/cron": 4} {
		var units []string
		require.NoError(t, filepath.WalkDir("../../examples/"+dir, func(file string, _ fs.DirEntry, err error) error {
			if slices.Contains([]string{".service", ".timer"}, filepath.Ext(file)) {
				units = append(units, file)
			}
			return err
		}))
		require.Len(t, units, want, dir)
		verify, installed := []string{"verify"}, t.TempDir()
		for _, unit := range units {
			text, err := os.ReadFile(unit)
			require.NoError(t, err)
			text = regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAll(text, []byte("ExecStart="+filepath.Join(bin, "elector")))
			verify = append(verify, filepath.Join(installed, filepath.Base(unit)))
			require.NoError(t, os.WriteFile(verify[len(verify)-1], text, 0o644))
		}
		out, err := exec.Command("systemd-analyze", verify...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Empty(t, string(out), dir)
	}
	config, err := os.ReadFile("../../examples/elector/systemd/report.yaml")
	require.NoError(t, err)
	installed := strings.ReplaceAll(string(config), "/usr/local/bin/", bin+"/")
	file := filepath.Join(t.TempDir(), "report.yaml")
	require.NoError(t, os.WriteFile(file, []byte(installed), 0o644))
	out, err := exec.Command(filepath.Join(bin, "elector"), "config", "--config", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// newBinDirectory returns a directory with the commands elector and raftlog, and with scripts instead of the programs that the
// documentation assumes, which print their names and arguments.
func newBinDirectory(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, command := range []string{"elector", "raftlog"} {
		require.NoError(t, os.Symlink(buildOf[command](t), filepath.Join(bin, command)))
	}
	for _, program := range []string{"report", "backup", "ip", "configure-primary", "configure-replica-of"} {
		script := "#!/bin/sh\necho " + program + ` "$@"` + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755))
	}
	return bin
}

// buildOf contains functions that build a command as users do, by the name of the command.
var buildOf = map[string]func(testing.TB) string{"elector": buildPlain, "raftlog": buildOnce("raftlog", "raftlog")}

// shell runs command lines of the documentation.
type shell struct {
	*testing.T
	bin     string
	replace *strings.Replacer
}

// runningLine is a command line that a shell runs.
type runningLine struct {
	*testing.T
	line    string
	cmd     *exec.Cmd
	process *testenv.Process
	log     string // the file with the output of the line
}

// start starts a command line. The processes of the line are killed when the test ends.
func (s *shell) start(line string) *runningLine {
	s.Helper()
	line = s.replace.Replace(line)
	cmd := exec.Command("bash", "-c", line)
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "TERM=xterm")
	cmd.Dir = s.TempDir()
	r := &runningLine{s.T, line, cmd, nil, filepath.Join(s.TempDir(), "output")}
	file, err := os.Create(r.log)
	require.NoError(s, err)
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	r.process, err = testenv.StartProcess(cmd)
	require.NoError(s, err)
	s.Cleanup(func() {
		_ = syscall.Kill(-r.process.Pid(), syscall.SIGKILL) // the process has usually ended already
		<-r.process.Done()
		if s.Failed() {
			s.Logf("%s\n%s", line, r.output())
		}
	})
	return r
}

func (r *runningLine) output() string {
	text, err := os.ReadFile(r.log)
	require.NoError(r, err)
	return string(text)
}

// waitFor waits until the output of the line contains the text.
func (r *runningLine) waitFor(text string) {
	r.Helper()
	testenv.Eventually(r, func() bool { return strings.Contains(r.output(), text) }, text+" is not printed by "+r.line)
}

// requireSuccess waits until the line has ended, and requires exit code 0.
func (r *runningLine) requireSuccess() {
	r.Helper()
	testenv.Receive(r, r.process.Done(), "the end of "+r.line)
	require.Zero(r, r.cmd.ProcessState.ExitCode(), "%s: %s", r.line, r.output())
}

// terminate sends TERM to the line, and requires that the line ends with exit code 0.
func (r *runningLine) terminate() {
	r.Helper()
	require.NoError(r, r.cmd.Process.Signal(syscall.SIGTERM))
	r.requireSuccess()
}

// documentBackend is a backend on which a test runs command lines of the documentation.
type documentBackend struct {
	flags    string // the flags that the documentation abbreviates with "..."
	address  string // the text that replaces the addresses of servers in a line
	election string
	leader   []string // the additional flags of each elector that the test starts; the first elector is web-1
	other    string   // the additional flags of run and config in a line
}

// documentBackends contains functions that start the servers of a backend, by the name of the backend.
var documentBackends = map[string]func(t *testing.T) documentBackend{
	"zookeeper": func(t *testing.T) documentBackend {
		election := "/jobs/" + testenv.NewPath(t)[1:]
		return newDocumentBackend(election, "--backend zookeeper --election "+election+" --zookeeper-servers ", strings.Join(servers.Addrs(), ","))
	},
	"etcd": func(t *testing.T) documentBackend {
		return newDocumentBackend("/jobs/report", "--backend etcd --election /jobs/report --etcd-endpoints ", dbserver.StartEtcd(t, dbserver.EtcdConfig{}).URL(0))
	},
	"postgres": func(t *testing.T) documentBackend {
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Postgres("fsync=on") })
		return newStoreBackend("postgres://postgres@" + srv.Addr() + "/postgres?sslmode=disable")
	},
	"mysql": func(t *testing.T) documentBackend {
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.MariaDB() })
		return newStoreBackend("mysql://root@" + srv.Addr() + "/test")
	},
	"redis": func(t *testing.T) documentBackend {
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.Redis() })
		return newStoreBackend("redis://" + srv.Addr())
	},
	"nats": func(t *testing.T) documentBackend {
		srv := dbserver.StartServer(t, func() (*dbserver.Server, error) { return dbserver.NATS() })
		return newStoreBackend("nats://" + srv.Addr())
	},
	"raftlog": func(t *testing.T) documentBackend {
		var peers []string
		for _, id := range []string{"web-1", "web-2", "web-3"} {
			port, err := testenv.ReservePort()
			require.NoError(t, err)
			t.Cleanup(port.Release)
			peers = append(peers, fmt.Sprintf("%s=127.0.0.1:%d", id, port.Number))
		}
		b := newDocumentBackend("/jobs/report", "--backend raftlog --election /jobs/report --insecure --peers ", strings.Join(peers, ","))
		dir := t.TempDir()
		peer := func(id string) string {
			return "--instance-id " + id + " --peer-id " + id + " --dir " + filepath.Join(dir, id)
		}
		b.leader, b.other = []string{peer("web-1"), peer("web-2")}, peer("web-3")
		return b
	},
}

func newDocumentBackend(election, flags, address string) documentBackend {
	return documentBackend{flags: flags + address, address: address, election: election, leader: []string{"--instance-id web-1", "--instance-id web-2"}}
}

func newStoreBackend(url string) documentBackend {
	return newDocumentBackend("jobs", "--backend changefeed --election jobs --store ", "'"+url+"' --store-unsafe failover,power-loss,restart")
}

// TestDocuments_CommandsDoWhatPageDescribes checks that each command line of the documentation does what its page
// describes, on each backend for which the page claims that.
func TestDocuments_CommandsDoWhatPageDescribes(t *testing.T) {
	bin := newBinDirectory(t)
	for name, start := range documentBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			s := &shell{T: t, bin: bin, replace: strings.NewReplacer("FLAGS", b.flags)}
			for i, flags := range b.leader {
				s.start("exec elector run FLAGS --leader-begin-command true " + flags)
				if i == 0 && name != "raftlog" {
					w := s.start("elector status FLAGS --wait --is-leader web-1 --timeout 1m")
					w.requireSuccess()
				}
			}
			for line, e := range examples {
				if !slices.Contains(e.backends, name) {
					continue
				}
				t.Run(strings.ReplaceAll(line, "/", "_"), func(t *testing.T) {
					lead := &shell{T: t, bin: bin, replace: strings.NewReplacer("FLAGS", b.flags)}
					if !e.alone {
						lead.start("elector status FLAGS --wait; elector status FLAGS --is-leader web-1 || elector resign FLAGS; elector status FLAGS --wait --is-leader web-1").requireSuccess()
					}
					e.run(&shell{T: t, bin: bin, replace: b.newReplacer(t, line, e)}, line)
				})
			}
		})
	}
}

// newReplacer returns a Replacer that puts the servers and the election of the test into a line of the documentation.
func (b documentBackend) newReplacer(t *testing.T, line string, e example) *strings.Replacer {
	election, flags := b.election, b.flags
	if e.alone {
		election = testenv.NewPath(t)
	}
	switch {
	case strings.HasPrefix(line, "elector run"):
		flags += " " + b.other
	case strings.HasPrefix(line, "elector config"):
		flags += " --leader-begin-command true " + b.other
	}
	under, _, _ := strings.Cut(strings.TrimPrefix(election, "/"), "/")
	return strings.NewReplacer(
		"elector run", "exec elector run", "elector watch", "exec elector watch", "elector top", "exec script -qec 'elector top",
		"zk1,zk2,zk3", b.address, "etcd1:2379", b.address, "ADDRESS", b.address, "...", flags, "--under /jobs", "--under /"+under,
		"--election /jobs/report", "--election "+election, "--election /address", "--election "+election,
		" /jobs/report /jobs/clean", " "+election+" /jobs/clean", "/usr/local/bin/", "")
}

// run runs the line, and requires the result that the example describes.
func (e example) run(s *shell, line string) {
	if strings.HasPrefix(line, "elector top") {
		line += "' /dev/null" // the program script runs the line in a terminal
	}
	r := s.start(line)
	if e.until == "" {
		r.requireSuccess()
	} else {
		r.waitFor(e.until)
		if strings.HasPrefix(line, "elector run") {
			r.terminate()
		}
	}
	require.Contains(s, r.output(), e.prints, line)
}

// TestDocuments_DevServerLinesWork checks that the command lines for elector dev-server work in the order in which
// the page lists them.
func TestDocuments_DevServerLinesWork(t *testing.T) {
	bin := newBinDirectory(t)
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.", 64+pid>>14&63, pid>>7&127) // an address that only this process uses, so that the ports that the page names are free
	one := &shell{T: t, bin: bin, replace: strings.NewReplacer("exec elector dev-server", "exec elector dev-server --listen "+host+"1:2181")}
	single := one.start("exec elector dev-server")
	single.waitFor("listening on")
	one.start("elector status --zookeeper-servers " + host + "1 --election /none --timeout 1m; test $? = 5").requireSuccess()
	single.terminate()

	s := &shell{T: t, bin: bin, replace: strings.NewReplacer("127.0.0.1", host+"2")}
	server := s.start("exec elector dev-server --servers 3 --listen 127.0.0.1:2181 --tick 2s --control 127.0.0.1:2180")
	server.waitFor("listening on")
	leader := s.start("exec elector run --zookeeper-servers 127.0.0.1 --election /jobs/report --leader-begin-command 'echo begin' --leader-end-command 'echo end'")
	leader.waitFor("begin")
	state := s.start(`curl -s http://127.0.0.1:2180/state`)
	state.requireSuccess()
	session := regexp.MustCompile(`0x[0-9a-f]+`).FindString(state.output())
	require.NotEmpty(t, session, state.output())
	s.start("curl -fsS -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/sessions/" + session + "/expire").requireSuccess()
	leader.waitFor("end")
	s.start("curl -fsS -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/servers/1/partition").requireSuccess()
	s.start("curl -fsS -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/servers/1/heal").requireSuccess()
	leader.terminate()
	server.terminate()
}

// TestDocuments_RaftlogLinesWork checks that the command lines for raftlog work with three peers.
func TestDocuments_RaftlogLinesWork(t *testing.T) {
	file, dir := filepath.Join(t.TempDir(), "raftlog.yaml"), t.TempDir()
	for _, name := range []string{"secret", "client-secret"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(rand.Text()), 0o600))
	}
	config := "cluster: one\nsecret-file: " + dir + "/secret\nclient-secret-file: " + dir + "/client-secret\ndir: " + dir + "/{id}\npeers:\n"
	for _, id := range []string{"a", "b", "c"} {
		port, err := testenv.ReservePort()
		require.NoError(t, err)
		t.Cleanup(port.Release)
		config += fmt.Sprintf("  - tcp://127.0.0.1:%d/%s\n", port.Number, id)
	}
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	s := &shell{T: t, bin: newBinDirectory(t), replace: strings.NewReplacer("/etc/raftlog.yaml", file)}
	for _, id := range []string{"a", "b", "c"} {
		s.start("exec raftlog serve -c /etc/raftlog.yaml --peer-id " + id)
	}
	var script []string
	for _, line := range readCommandLines(t, "raftlog", "id=$(raftlog") {
		if !strings.HasPrefix(line.text, "raftlog serve") {
			script = append(script, line.text)
		}
	}
	s.start("set -e; " + strings.Join(script, "; ")).requireSuccess()
}
