# META.json is what PGXN takes: its specification 1.0.0 (https://pgxn.org/meta/spec.txt), field by
# field.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use Test::More;

my $top = "$FindBin::Bin/../..";
open(my $file, '<:raw', "$top/META.json") or die "META.json: $!\n";
my $meta = decode_json(do { local $/; <$file> });

my $semver = qr/\A(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\z/;
my $range = qr/\A(?:0|(?:(?:==|!=|<=|>=|<|>)\s*)?\d+\.\d+\.\d+(?:\s*,\s*(?:==|!=|<=|>=|<|>)\s*\d+\.\d+\.\d+)*)\z/;
my $term = qr{\A[^\s/\\[:cntrl:]]{2,}\z};
my $text = qr/\S/;
my %license = map { $_ => 1 } qw(agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1 gpl_2 gpl_3
	lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0 ssleay sun zlib open_source restricted
	unrestricted unknown);

# Tests that a hash has only fields that are known.
sub only
{
	my ($name, $hash, @known) = @_;
	my %known = map { $_ => 1 } @known;
	is(join(' ', grep { !$known{$_} && !/^x_/i } sort keys %{$hash}), '', "$name has only fields of the specification");
	return;
}

only('META.json', $meta, qw(abstract description generated_by license maintainer meta-spec name no_index prereqs provides
	release_status resources tags version));
like($meta->{name}, $term, 'name is a term');
like($meta->{version}, $semver, 'version is a semantic version');
like($meta->{$_}, $text, "there is a $_") for qw(abstract description maintainer generated_by);
is(join(' ', grep { !$license{$_} } ref $meta->{license} ? @{ $meta->{license} } : $meta->{license}), '', 'the license is one of the known');
like($meta->{release_status}, qr/\A(?:stable|testing|unstable)\z/, 'release_status is one of three');
is_deeply($meta->{'meta-spec'}, { version => '1.0.0', url => 'https://pgxn.org/meta/spec.txt' }, 'meta-spec names this specification');

ok(%{ $meta->{provides} }, 'it provides something');
for my $name (sort keys %{ $meta->{provides} })
{
	my $provided = $meta->{provides}{$name};
	like($name, $term, "$name is a term");
	only($name, $provided, qw(file version abstract docfile));
	like($provided->{version}, $semver, "$name has a semantic version");
	ok(defined $provided->{$_} && -f "$top/$provided->{$_}", "its $_ is there") for qw(file docfile);
}

only('prereqs', $meta->{prereqs}, qw(configure build test runtime develop));
for my $phase (values %{ $meta->{prereqs} })
{
	only('a phase', $phase, qw(requires recommends suggests conflicts));
	for my $relation (values %{$phase})
	{
		like($relation->{$_}, $range, "the version of $_ is a range") for sort keys %{$relation};
	}
}

is(join(' ', grep { !m{\A[^/\\[:cntrl:]]{1,255}\z} } @{ $meta->{tags} }), '', 'tags are short and on one line');

done_testing();
