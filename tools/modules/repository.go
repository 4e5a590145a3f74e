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

// repository is the modules of go.work.
type repository struct {
	root    string // directory of go.work
	work    *modfile.WorkFile
	modules []*module
}

// module is a module of the repository.
type module struct {
	path string // such as github.com/go-leaderelection/leaderelection/adapters/etcd
	dir  string // relative to the root, such as adapters/etcd, or "."
	file *modfile.File
}

// others returns the modules that are not part of the workspace, such as the benchmarks.
func (r *repository) others() (others []*module, err error) {
	err = filepath.WalkDir(r.root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" {
			return err
		}
		m, err := r.read(filepath.Dir(name))
		if err == nil && r.module(m.path) == nil {
			others = append(others, m)
		}
		return err
	})
	return others, err
}

// read reads the module in a directory.
func (r *repository) read(dir string) (*module, error) {
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

// readModules reads the go.work of the directory that contains this one.
func readModules() (*repository, error) {
	root, err := filepath.Abs(".")
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
		m, err := r.read(filepath.Join(root, use.Path))
		if err != nil {
			return nil, err
		}
		r.modules = append(r.modules, m)
	}
	return r, nil
}

func (r *repository) module(path string) *module {
	for _, m := range r.modules {
		if m.path == path {
			return m
		}
	}
	return nil
}

// core is the path of the module in the root directory. It begins the paths of all modules.
func (r *repository) core() string {
	for _, m := range r.modules {
		if m.dir == "." {
			return m.path
		}
	}
	panic("go.work does not use the root directory")
}

// version returns the version with which the modules require each other.
func (r *repository) version() (string, error) {
	version, by := "", ""
	for _, m := range r.modules {
		for _, required := range m.file.Require {
			switch {
			case r.module(required.Mod.Path) == nil:
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

// withVersion returns the module's go.mod in which the modules of the repository have a version.
func (r *repository) withVersion(m *module, version string) ([]byte, error) {
	text, err := m.file.Format()
	if err != nil {
		return nil, err
	}
	changed, err := modfile.Parse(m.file.Syntax.Name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, required := range changed.Require {
		if r.module(required.Mod.Path) != nil {
			if err := changed.AddRequire(required.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	return changed.Format()
}

// setVersion lets the modules require each other with a version. In the workspace they are
// replaced, because the go command would look for the version, which may not be published yet.
func setVersion(r *repository, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version of the form vX.Y.Z", version)
	}
	others, err := r.others()
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, m := range append(others, r.modules...) {
		text, err := r.withVersion(m, version)
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

// tag tags every module with the version with which the modules require each other.
func tag(ctx context.Context, r *repository) error {
	version, err := r.version()
	if err != nil {
		return err
	}
	changes, err := command(ctx, r.root, nil, "git", "status", "--porcelain")
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
	if !strings.Contains(string(changelog), "\n## "+version) {
		return fmt.Errorf("CHANGELOG.md has no section %q", "## "+version)
	}
	if err := check(ctx, r); err != nil {
		return err
	}
	var tags []string
	for _, m := range r.modules {
		tags = append(tags, path.Join(m.dir, version))
	}
	for _, name := range tags {
		if _, err := command(ctx, r.root, nil, "git", "tag", "-a", "-m", name, name); err != nil {
			return err
		}
	}
	fmt.Println("created. To publish: git push --atomic origin", strings.Join(tags, " "))
	return nil
}

// command runs a program and returns its output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
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
