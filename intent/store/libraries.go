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
	libraries       = "libraries/"        // publications, by name and version
	libraryContents = "library-contents/" // by digest
)

// PutLibraryContent stores the content of a library and returns its digest.
func (s *Store) PutLibraryContent(ctx context.Context, content config.LibraryContent) (string, error) {
	return s.putJSON(ctx, libraryContents, content)
}

// LibraryContent returns the content of a library by its digest.
func (s *Store) LibraryContent(ctx context.Context, digest string) (config.LibraryContent, error) {
	return getJSON[config.LibraryContent](ctx, s, libraryContents, digest)
}

// CreateLibrary records the meaning of a library's name and version. The first call wins. It returns the stored record.
func (s *Store) CreateLibrary(ctx context.Context, l protocol.Library) (protocol.Library, error) {
	stored, _, err := createRecord(ctx, s, libraryKey(l.Name, l.Version), l, ofLibrary(l.Name, l.Version))
	return stored, err
}

// Library returns the record of a library's name and version.
func (s *Store) Library(ctx context.Context, name string, version int64) (protocol.Library, error) {
	return fetchRecord(ctx, s, libraryKey(name, version), ofLibrary(name, version))
}

func ofLibrary(name string, version int64) func(protocol.Library) bool {
	return func(l protocol.Library) bool { return l.Name == name && l.Version == version }
}

func libraryKey(name string, version int64) string {
	return fmt.Sprintf("%s%s/%012d", libraries, name, version)
}

// Libraries lists the published versions of all libraries by name, sorted.
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

// Imports returns a function that looks up imported libraries for the compiler. If a library does not exist, the error is a
// *strict.Fault that lists the existing ones.
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
			err = &CorruptError{libraryContents + record.Digest, "it contains more than a library"}
		}
		var damaged *CorruptError
		if errors.As(err, &damaged) || IsNotFound(err) {
			err = &strict.Fault{
				Code: "damaged-library", Message: fmt.Sprintf("library %s %d is damaged in the store: %v", name, version, err),
				Expected: "the same content, published again",
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
		fault.Expected = "a library that was published with: converge config library publish DIR"
	}
	return &fault
}
