package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

const (
	libraries       = "libraries/"        // what is published, by name and version
	libraryContents = "library-contents/" // by digest
)

// PutLibraryContent keeps what a library says and returns its digest.
func (s *Store) PutLibraryContent(ctx context.Context, content config.LibraryContent) (string, error) {
	return s.putJSON(ctx, libraryContents, content)
}

// LibraryContent returns what a library of a digest says.
func (s *Store) LibraryContent(ctx context.Context, digest string) (config.LibraryContent, error) {
	return getJSON[config.LibraryContent](ctx, s, libraryContents, digest)
}

// CreateLibrary records what a name and a version of a library mean, unless that is recorded: the first call decides. It returns
// the record that stands.
func (s *Store) CreateLibrary(ctx context.Context, l protocol.Library) (protocol.Library, error) {
	stands, _, err := createRecord(ctx, s, libraryKey(l.Name, l.Version), l, ofLibrary(l.Name, l.Version))
	return stands, err
}

// Library returns what a name and a version of a library mean.
func (s *Store) Library(ctx context.Context, name string, version int64) (protocol.Library, error) {
	return fetchRecord(ctx, s, libraryKey(name, version), ofLibrary(name, version))
}

func ofLibrary(name string, version int64) func(protocol.Library) bool {
	return func(l protocol.Library) bool { return l.Name == name && l.Version == version }
}

func libraryKey(name string, version int64) string {
	return fmt.Sprintf("%s%s/%012d", libraries, name, version)
}

// Libraries lists the versions of all libraries that are published, by name; in order.
func (s *Store) Libraries(ctx context.Context) (map[string][]int64, error) {
	keys, err := s.blobs.list(ctx, libraries)
	if err != nil {
		return nil, err
	}
	all := map[string][]int64{}
	for _, key := range keys {
		name, number, _ := strings.Cut(strings.TrimPrefix(key, libraries), "/")
		if version, err := strconv.ParseInt(number, 10, 64); err == nil {
			all[name] = append(all[name], version)
		}
	}
	return all, nil
}

// Imports returns what compiling asks for the libraries of imports. What is not there is a *strict.Fault that lists what is.
func (s *Store) Imports(ctx context.Context) func(name string, version int) (config.LibraryContent, error) {
	return func(name string, version int) (config.LibraryContent, error) {
		record, err := s.Library(ctx, name, int64(version))
		if IsNotFound(err) {
			return config.LibraryContent{}, s.unknownLibrary(ctx, name, version)
		}
		var content config.LibraryContent
		if err == nil {
			content, err = s.LibraryContent(ctx, record.Digest)
		}
		if err == nil && content.Digest() != record.Digest {
			err = &CorruptError{libraryContents + record.Digest, "it holds more than a library"}
		}
		var damaged *CorruptError
		if errors.As(err, &damaged) || IsNotFound(err) {
			err = &strict.Fault{
				Code: "damaged-library", Message: fmt.Sprintf("library %s %d is damaged in the store: %v", name, version, err),
				Expected: "it to be published again, with the same content",
			}
		}
		return content, err
	}
}

func (s *Store) unknownLibrary(ctx context.Context, name string, version int) error {
	all, err := s.Libraries(ctx)
	if err != nil {
		return err
	}
	if versions := all[name]; len(versions) > 0 {
		const most = 10
		fault := strict.Fault{Code: config.UnknownLibrary, Message: fmt.Sprintf("there is no version %d of library %s", version, name)}
		fault.Expected = strict.OneOf(strict.Map(versions[max(0, len(versions)-most):], func(n int64) string { return strconv.FormatInt(n, 10) }))
		return &fault
	}
	names := strict.Keys(all)
	fault := strict.Unknown(config.UnknownLibrary, fmt.Sprintf("there is no library %q", name), name, names)
	if len(names) == 0 {
		fault.Expected = "one that was published with: converge library publish DIR"
	}
	return &fault
}
