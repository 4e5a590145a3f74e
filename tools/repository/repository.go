package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// repository describes this repository: the directory of go.work and the modules that go.work lists.
type repository struct {
	root    string // the directory of go.work
	work    *modfile.WorkFile
	modules []*module
}

// module is a Go module of this repository.
type module struct {
	path string        // the module path, for example github.com/go-leaderelection/leaderelection/adapters/etcd
	dir  string        // the directory relative to the root, for example adapters/etcd; "." for the core module
	file *modfile.File // the contents of its go.mod
}

// findOthers returns the modules of the repository that go.work does not list, such as the benchmarks.
func (r *repository) findOthers() (others []*module, err error) {
	err = filepath.WalkDir(r.root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" {
			return err
		}
		m, err := r.readModule(filepath.Dir(name))
		if err == nil && r.find(m.path) == nil {
			others = append(others, m)
		}
		return err
	})
	return others, err
}

// readModule reads the go.mod in a directory.
func (r *repository) readModule(dir string) (*module, error) {
	relative, err := filepath.Rel(r.root, dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	return &module{path: file.Module.Mod.Path, dir: filepath.ToSlash(relative), file: file}, nil
}

// readRepository reads the go.work in a directory, or in the nearest parent directory that has one.
func readRepository(dir string) (*repository, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for filepath.Dir(root) != root {
		if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &repository{root: root}
	if r.work, err = modfile.ParseWork(name, text, nil); err != nil {
		return nil, err
	}
	for _, use := range r.work.Use {
		m, err := r.readModule(filepath.Join(root, use.Path))
		if err != nil {
			return nil, err
		}
		r.modules = append(r.modules, m)
	}
	return r, nil
}

// isProgram reports whether a module contains programs, examples or tests, and no packages that users import. Such
// modules require the newest versions of their dependencies, and libraries require the lowest versions.
func (m *module) isProgram() bool {
	return m.dir == "cmd" || m.isInternal()
}

// isInternal reports whether users neither import nor install a module.
func (m *module) isInternal() bool {
	return m.dir == "examples" || m.dir == "integrationtest"
}

// find returns the module with the given path, or nil.
func (r *repository) find(path string) *module {
	for _, m := range r.modules {
		if m.path == path {
			return m
		}
	}
	return nil
}

// corePath returns the path of the core module, which is in the root directory. The paths of all modules begin with
// this path.
func (r *repository) corePath() string {
	for _, m := range r.modules {
		if m.dir == "." {
			return m.path
		}
	}
	panic("go.work does not use the root directory")
}

// requiredVersion returns the version that the modules require of each other.
func (r *repository) requiredVersion() (string, error) {
	version, by := "", ""
	for _, m := range r.modules {
		for _, required := range m.file.Require {
			switch {
			case r.find(required.Mod.Path) == nil:
			case version == "":
				version, by = required.Mod.Version, m.dir
			case version != required.Mod.Version:
				return "", fmt.Errorf("%s requires %s, but %s requires version %s: run modules version",
					m.dir, required.Mod, by, version)
			}
		}
	}
	return version, nil
}

// goMod returns the go.mod of a module, in which the modules of the repository have the given version.
func (r *repository) goMod(m *module, version string) ([]byte, error) {
	text, err := m.file.Format()
	if err != nil {
		return nil, err
	}
	changed, err := modfile.Parse(m.file.Syntax.Name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, required := range changed.Require {
		if r.find(required.Mod.Path) != nil {
			if err := changed.AddRequire(required.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	return changed.Format()
}

// setVersion makes the modules of the repository require each other with the given version. The version may not be
// published yet, so setVersion makes go.work replace it by the working tree.
func setVersion(r *repository, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version of the form vX.Y.Z", version)
	}
	others, err := r.findOthers()
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, m := range append(others, r.modules...) {
		text, err := r.goMod(m, version)
		if err != nil {
			return err
		}
		files[filepath.Join(m.dir, "go.mod")] = text
	}
	for _, replaced := range r.work.Replace {
		for i, token := range replaced.Syntax.Token {
			if token == replaced.Old.Version {
				replaced.Syntax.Token[i] = version
			}
		}
	}
	files["go.work"] = modfile.Format(r.work.Syntax)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tagModules creates a git tag for each module. All tags contain the version that the modules require of each other.
func tagModules(ctx context.Context, r *repository) error {
	version, err := r.requiredVersion()
	if err != nil {
		return err
	}
	changes, err := runCommand(ctx, r.root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the working tree has uncommitted changes:\n%s", changes)
	}
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(changelog), "\n## "+version+" - ") {
		return fmt.Errorf("CHANGELOG.md has no section %q with a date", "## "+version+" - ")
	}
	var tags []string
	for _, m := range r.modules {
		tags = append(tags, path.Join(m.dir, version))
	}
	for _, name := range tags {
		if _, err := runCommand(ctx, r.root, nil, "git", "tag", "-a", "-m", name, name); err != nil {
			return err
		}
	}
	fmt.Println("tagged:", strings.Join(tags, " "))
	return nil
}

// runCommand runs a program in dir and returns its standard output.
func runCommand(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s in %s: %w\n%s%s", name, strings.Join(args, " "), dir, err, out, stderr.String())
	}
	return string(out), nil
}
