package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxWalkPackages and maxWalkFiles are the maximum numbers of packages and files of the library whose code runs for
// one candidate, from NewElection until the Status channel is closed. A change that needs fewer packages or files
// must lower these limits.
const (
	maxWalkPackages = 7
	maxWalkFiles    = 30
)

// notWalked matches packages that do not count: the embedded server and the dialer.
var notWalked = regexp.MustCompile(`/(zktest|zkdial|internal/wire|internal/testenv)(/|$)`)

// candidateTest is a test whose only candidate joins an election, leads and resigns, in fake time.
const candidateTest = `package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.Start(t)
		conn, _, err := zkdial.Connect([]string{server.Name()}, 4*time.Second, zkdial.WithDialer(server.Dialer()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		candidate, err := leaderelection.NewElection(conn, "/election", leaderelection.WithCreateNode())
		if err != nil {
			t.Fatal(err)
		}
		go candidate.ElectLeader()
		for status := range candidate.Status() {
			if status.Role == leaderelection.Leader {
				if err := candidate.Resign(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
`

// TestWalk_ExecutesFewFiles checks that one candidate that joins, leads and resigns does not execute code in more
// packages or files than maxWalkPackages and maxWalkFiles. The coverage of candidateTest shows which files are
// executed. go test -v prints the packages and files.
func TestWalk_ExecutesFewFiles(t *testing.T) {
	source, profile := filepath.Join(t.TempDir(), "candidate_test.go"), filepath.Join(t.TempDir(), "profile")
	require.NoError(t, os.WriteFile(source, []byte(candidateTest), 0o600))
	out, err := exec.Command("go", "test", "-count=1", "-cpu=1", "-coverpkg="+core+"/...", "-coverprofile="+profile, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(profile)
	require.NoError(t, err)
	files := map[string][]string{} // the files that contain executed code, by package
	for line := range strings.Lines(string(text)) {
		file, rest, _ := strings.Cut(line, ":")
		var from, to string
		var n, count int
		if _, err := fmt.Sscanf(strings.Replace(rest, ",", " ", 1), "%s %s %d %d", &from, &to, &n, &count); err != nil || count == 0 {
			continue
		}
		if p := path.Dir(file); strings.HasPrefix(p, core) && !notWalked.MatchString(p) && !slices.Contains(files[p], path.Base(file)) {
			files[p] = append(files[p], path.Base(file))
		}
	}
	total := 0
	for _, p := range slices.Sorted(maps.Keys(files)) {
		slices.Sort(files[p])
		total += len(files[p])
		t.Logf("%-40s %s", "."+strings.TrimPrefix(p, core), strings.Join(files[p], " "))
	}
	t.Logf("%d packages, %d files", len(files), total)
	require.NotEmpty(t, files)
	assert.LessOrEqual(t, len(files), maxWalkPackages, "packages")
	assert.LessOrEqual(t, total, maxWalkFiles, "files")
}
