package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tidyModules runs go mod tidy in a copy of every module. If write is true, it writes the results back to the working
// tree. Otherwise it returns an error if a module is not tidy.
func (p *proxy) tidyModules(ctx context.Context, write bool) error {
	version, err := p.repository.requiredVersion()
	if err != nil {
		return err
	}
	var untidy []error
	for _, m := range p.repository.modules {
		changed, err := p.tidyModule(ctx, m, version, write)
		if err != nil {
			return err
		}
		if changed && !write {
			untidy = append(untidy, fmt.Errorf("the go.mod or go.sum of %s is not tidy: run make tidy", m.dir))
		}
	}
	return errors.Join(untidy...)
}

// tidyModule runs go mod tidy in a copy of a module, and reports whether this has changed the go.mod or the go.sum.
// If write is true, it writes the result back to the working tree.
func (p *proxy) tidyModule(ctx context.Context, m *module, version string, write bool) (changed bool, err error) {
	dir, err := p.copyModule(m)
	if err != nil {
		return false, err
	}
	if _, err := runCommand(ctx, dir, p.env, "go", "mod", "tidy"); err != nil {
		return false, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		result := string(text)
		if name == "go.sum" {
			// Omit the modules of the workspace from the go.sum in the repository, because their hashes change with
			// every commit.
			result = ""
			for line := range strings.Lines(string(text)) {
				if path, _, _ := strings.Cut(line, " "); p.repository.find(path) == nil {
					result += line
				}
			}
		}
		result = strings.ReplaceAll(result, p.version, version)
		original := filepath.Join(p.repository.root, m.dir, name)
		before, err := os.ReadFile(original)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		if string(before) == result {
			continue
		}
		changed = true
		if write {
			if err := os.WriteFile(original, []byte(result), 0o644); err != nil {
				return false, err
			}
		}
	}
	return changed, nil
}

// copyDir returns the directory in which copyModule creates the copy of a module.
func (p *proxy) copyDir(m *module) string { return filepath.Join(p.dir, "copy", m.dir) }

// copyModule copies a module to a directory outside the workspace, and returns that directory.
func (p *proxy) copyModule(m *module) (string, error) {
	dir := p.copyDir(m)
	source := filepath.Join(p.repository.root, m.dir)
	err := filepath.WalkDir(source, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if relative == "." {
				return os.MkdirAll(dir, 0o755)
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil || d.Name() == ".git" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, relative), 0o755)
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, relative), text, info.Mode().Perm())
	})
	if err != nil {
		return "", err
	}
	goMod, err := p.repository.goMod(m, p.version)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "go.mod"), goMod, 0o644)
}
