package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// The limits for what the core module may change in a program that requires it.
const (
	maxRaised = 0  // the number of requirements in the go.mod service below whose versions the module may raise
	maxEdges  = 14 // the number of edges in the module graph of a program without other requirements
)

// checkModules checks that every module is tidy, that its packages build in a program that requires only this module,
// and that the tests of libraries compile with exactly the versions that the libraries require. It measures the
// effects of libraries on other programs, and checks that the modules of the base commit and a store by another
// author work with the core module.
func (p *proxy) checkModules(ctx context.Context) error {
	if err := p.tidyModules(ctx, false); err != nil {
		return err
	}
	for _, m := range p.repository.modules {
		if err := p.buildModule(ctx, m); err != nil {
			return err
		}
		if m.isProgram() {
			continue
		}
		if _, err := p.runWithExactVersions(ctx, m, "vet", "./..."); err != nil {
			return err
		}
		if err := p.measureModule(ctx, m); err != nil {
			return err
		}
	}
	if err := p.checkBase(ctx); err != nil {
		return err
	}
	return p.checkThirdParty(ctx)
}

// checkThirdParty tests a store that is not part of the repository with the core module of the working tree.
func (p *proxy) checkThirdParty(ctx context.Context) error {
	dir := filepath.Join(p.dir, "thirdparty")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(p.repository.root, "tools", "repository", "testdata", "thirdparty"))); err != nil {
		return err
	}
	for _, args := range [][]string{{"get", p.repository.corePath() + "@" + p.version}, {"mod", "tidy"}, {"vet", "./..."}, {"test", "-cpu", "1", "./..."}} {
		if _, err := runCommand(ctx, dir, p.env, "go", args...); err != nil {
			return fmt.Errorf("test a store by another author: %w", err)
		}
	}
	fmt.Println("a store of another author passes its tests")
	return nil
}

// testModules runs the tests of the libraries in dirs. The tests use exactly the versions of dependencies that the
// library requires.
func (p *proxy) testModules(ctx context.Context, dirs []string) error {
	if err := p.tidyModules(ctx, false); err != nil {
		return err
	}
	for _, m := range p.repository.modules {
		if m.isProgram() || !slices.Contains(dirs, m.dir) {
			continue
		}
		out, err := p.runWithExactVersions(ctx, m, "test", "-cpu", "1", "./...")
		if err != nil {
			return err
		}
		fmt.Print(out)
	}
	return nil
}

// runWithExactVersions runs the go command in a copy of a module, which must be tidy, with exactly the versions that
// the module requires.
func (p *proxy) runWithExactVersions(ctx context.Context, m *module, command string, args ...string) (string, error) {
	return runCommand(ctx, p.copyDir(m), p.env, "go", append([]string{command, "-mod=readonly"}, args...)...)
}

// buildModule checks that the packages of a module build in a new program that requires only this module.
func (p *proxy) buildModule(ctx context.Context, m *module) error {
	dir, err := p.newProgram("module program\n")
	if err != nil {
		return err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "get", m.path+"@"+p.version); err != nil {
		return err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "build", m.path+"/..."); err != nil {
		return err
	}
	edges, err := p.countEdges(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Printf("%-32s builds; module graph: %d edges\n", m.dir, edges)
	if m.dir == "." && edges > maxEdges {
		return fmt.Errorf("the module graph of a program that requires %s has %d edges, more than %d", m.path, edges, maxEdges)
	}
	return nil
}

// countEdges returns the number of edges in the module graph of the program in dir.
func (p *proxy) countEdges(ctx context.Context, dir string) (int, error) {
	graph, err := runCommand(ctx, dir, p.env, "go", "mod", "graph")
	return strings.Count(graph, "\n"), err
}

// newProgram creates a module with the given go.mod, and returns its directory. files contains the names and contents
// of other files, alternately.
func (p *proxy) newProgram(goMod string, files ...string) (string, error) {
	dir, err := os.MkdirTemp(p.dir, "program")
	if err != nil {
		return "", err
	}
	files = append(files, "go.mod", goMod)
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// service is the go.mod of a program with usual requirements whose versions are not the newest.
const service = `module service

go 1.24.0

require (
	github.com/jackc/pgx/v5 v5.7.0
	github.com/nats-io/nats.go v1.41.0
	github.com/prometheus/client_golang v1.21.0
	github.com/redis/go-redis/v9 v9.7.0
	github.com/stretchr/testify v1.11.1
	go.etcd.io/etcd/client/v3 v3.5.21
	golang.org/x/net v0.38.0
	google.golang.org/grpc v1.71.0
	google.golang.org/protobuf v1.36.5
)
`

const serviceImports = `package main

import (
	_ "github.com/jackc/pgx/v5"
	_ "github.com/nats-io/nats.go"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/redis/go-redis/v9"
	_ "go.etcd.io/etcd/client/v3"
	_ "golang.org/x/net/http2"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
)

func main() {}
`

const serviceTests = `package main

import _ "github.com/stretchr/testify/require"
`

// measureModule adds a library to a program with the go.mod service, and compares the versions that the program
// requires before and after that.
func (p *proxy) measureModule(ctx context.Context, m *module) error {
	dir, err := p.newProgram(service, "main.go", serviceImports, "main_test.go", serviceTests)
	if err != nil {
		return err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "mod", "tidy"); err != nil {
		return err
	}
	before, err := readRequirements(dir)
	if err != nil {
		return err
	}
	user := fmt.Sprintf("package main\n\nimport _ %q\n", m.path)
	if err := os.WriteFile(filepath.Join(dir, "leader.go"), []byte(user), 0o644); err != nil {
		return err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "get", m.path+"@"+p.version); err != nil {
		return err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "mod", "tidy"); err != nil {
		return err
	}
	if m.dir == "." { // build only for the core module: compiling the program takes a minute for each library
		if _, err := runCommand(ctx, dir, p.env, "go", "build", "./..."); err != nil {
			return err
		}
	}
	after, err := readRequirements(dir)
	if err != nil {
		return err
	}
	var raised []string
	for path, version := range before {
		if semver.Compare(after[path], version) > 0 {
			raised = append(raised, fmt.Sprintf("%s %s to %s", path, version, after[path]))
		}
	}
	slices.Sort(raised)
	fmt.Printf("%-32s raises %d of the %d requirements of a service%s\n", m.dir, len(raised), len(before), strings.Join(append([]string{""}, raised...), "\n    "))
	if m.dir == "." && len(raised) > maxRaised {
		return fmt.Errorf("the core module raises %d requirements of a service, more than %d", len(raised), maxRaised)
	}
	return nil
}

// readRequirements returns the versions of the modules that a go.mod requires.
func readRequirements(dir string) (map[string]string, error) {
	name := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	parsed, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, required := range parsed.Require {
		versions[required.Mod.Path] = required.Mod.Version
	}
	return versions, nil
}
