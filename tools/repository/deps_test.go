package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkflows_UseFixedVersions checks that no workflow uses an action by a tag, which the owner of the action can
// move, a tool without a fixed version, or a checkout that keeps the token of the workflow.
func TestWorkflows_UseFixedVersions(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	action := regexp.MustCompile(`uses: (\S+?)@(\S+)(.*)\n(.*)`)
	pinned := regexp.MustCompile(`^[0-9a-f]{40}$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range action.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, pinned, m[2], "%s: %s: not the hash of a commit", file, m[1])
			require.Regexp(t, `^ # v\d+\.\d+\.\d+$`, m[3], "%s: %s: the comment does not name the tag", file, m[1])
			if m[1] == "actions/checkout" {
				require.Contains(t, m[4], "persist-credentials: false", file)
			}
		}
		require.NotContains(t, string(text), "@latest", file)
		require.NotContains(t, string(text), "~>", file)
	}
}

// TestModules_DoNotImportInternalPackagesOfOthers checks that no file that is not a test imports an internal package
// of another module. The modules are released separately, and a program can upgrade one module alone, so one module
// may use only public packages of another. Modules that are never released may also import the servers of tests.
func TestModules_DoNotImportInternalPackagesOfOthers(t *testing.T) {
	var modules []string // the directories of the modules
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if d.Name() == "go.mod" {
			modules = append(modules, filepath.ToSlash(filepath.Dir(name)))
		}
		return err
	}))
	require.Greater(t, len(modules), 10)
	moduleOf := func(name string) (longest string) {
		longest = "."
		for _, m := range modules {
			if len(m) > len(longest) && strings.HasPrefix(name+"/", m+"/") {
				longest = m
			}
		}
		return longest
	}
	imports := 0
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := moduleOf(filepath.ToSlash(name))
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			own, isOwn := strings.CutPrefix(imported, core+"/")
			if !isOwn || !strings.Contains("/"+own+"/", "/internal/") {
				continue
			}
			imports++
			if to := moduleOf(own); from != to && !(neverReleased(from) && (strings.HasPrefix(own, "internal/testenv") || neverReleased(to))) {
				t.Errorf("%s imports %s of another module", name, imported)
			}
		}
		return nil
	}))
	require.Greater(t, imports, 100)
}

func neverReleased(module string) bool {
	return module == "integrationtest" || module == "bench" || strings.HasPrefix(module, "bench/") || module == "tools"
}

// TestDependencies_AreFew checks that a program that imports one of the packages in the table links only the standard
// library, this module and the ZooKeeper client. The module requires further modules only for its tests.
func TestDependencies_AreFew(t *testing.T) {
	for _, name := range []string{"", "/elector", "/electiontest", "/zkdial", "/adapters/console", "/adapters/changefeed", "/adapters/changefeed/memory"} {
		packages := dependenciesOf(t, name)
		require.Contains(t, packages, "github.com/go-zookeeper/zk")
		for _, p := range packages {
			own, isOwn := strings.CutPrefix(p, core)
			switch {
			case p == "github.com/go-zookeeper/zk":
			case isOwn && (own == name || isPartOfElections(own)):
			case isOwn && strings.HasPrefix(name, "/adapters/changefeed") && slices.Contains(changefeedPackages, own):
			default:
				t.Errorf("%s links %s", core+name, p)
			}
		}
	}
}

// TestDemoDependencies_AreFew checks that the demo, which new users compile first, links only the ZooKeeper client,
// the election, its dialer and the embedded servers.
func TestDemoDependencies_AreFew(t *testing.T) {
	for _, p := range dependenciesOf(t, "/demo") {
		switch own, isOwn := strings.CutPrefix(p, core); {
		case p == "github.com/go-zookeeper/zk":
		case isOwn && (isPartOfElections(own) || own == "/demo" || own == "/zkdial" || own == "/internal/wire" || strings.HasPrefix(own, "/zktest")):
		default:
			t.Errorf("demo links %s", p)
		}
	}
}

// isPartOfElections reports whether a package of this module is linked into every program with an election.
func isPartOfElections(name string) bool {
	switch name {
	case "", "/event", "/candidacy", "/candidacy/limit", "/candidacy/record", "/transport":
		return true
	}
	return strings.HasPrefix(name, "/internal/zk/")
}

var changefeedPackages = []string{"/adapters/changefeed", "/adapters/changefeed/store", "/adapters/changefeed/internal/protocol", "/resign"}

// dependenciesOf returns the packages that a package of this module depends on, without the packages of the standard library.
func dependenciesOf(t *testing.T, name string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", core+name).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}
