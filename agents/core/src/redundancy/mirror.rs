//! A scheme that exists in tests only: each member keeps the files of all members in one redundancy file, so that any
//! one survivor restores all. All members send to all, and several can be lost: it uses what a real scheme of that kind
//! needs of the trait. It is registered by one line, and the tests of all schemes cover it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use holdfast_model::{RankDescriptor, Scheme};

use super::files::{MemberFiles, SetFile, SetId};
use super::groups::{ForcedLocal, GroupRules, Groups, Site, sets};
use super::link::{LinkReceiver, LinkSender};
use super::logical::LogicalFile;
use super::lost_member::LostFiles;
use super::member::{GroupMember, MemberTask};
use super::piece::BufferPool;
use super::scheme::{LostPiece, OpenSet, RedundancyScheme, SetHeader, TakePiece};
use super::{RedundancyError, Result};
use crate::control::meta::{FileKind, Meta};
use crate::kvtree::file as hash_file;
use crate::store::DatasetFiles;

pub const NAME: Scheme = Scheme::new("MIRROR");

#[derive(Debug)]
pub struct Mirror;

/// Files and bytes of members, by index.
type Archive = BTreeMap<u32, (MemberFiles, Vec<u8>)>;

impl RedundancyScheme for Mirror {
    fn name(&self) -> Scheme {
        NAME
    }

    fn limit(&self) -> &'static str {
        "MIRROR needs one member"
    }

    fn form(&self, sites: &[Site], rules: GroupRules<'_>) -> Result<Groups, ForcedLocal> {
        sets(NAME, sites, rules, 2)
    }

    fn tolerance(&self, descriptor: &RankDescriptor) -> u32 {
        descriptor.group_size - 1
    }

    fn encode(&self, task: &MemberTask, node: &dyn GroupMember) -> Result<()> {
        let pool = BufferPool::default();
        let own = read_member(node.directory(), task.index, node.files()?)?;
        let descriptor = serde_json::to_vec(&node.descriptor(task.rank()?)?).unwrap();
        let others: Vec<u32> = (0..task.size()).filter(|other| *other != task.index).collect();
        let mut archive = Archive::new();
        std::thread::scope(|scope| -> Result<()> {
            let sending = scope.spawn(|| {
                for other in &others {
                    let mut link = node.link_to(*other, &pool)?;
                    link.send(descriptor.clone()).map_err(lost)?;
                    send(&mut *link, &own)?;
                    link.finish().map_err(lost)?;
                }
                Ok::<_, RedundancyError>(())
            });
            for other in &others {
                let mut link = node.link_from(*other, &pool)?;
                let descriptor = serde_json::from_slice(&link.receive().map_err(lost)?).unwrap();
                archive.insert(*other, receive(&mut *link)?);
                link.finish().map_err(lost)?;
                node.keep_descriptor(task.rank_of(*other)?, &descriptor)?;
            }
            sending.join().unwrap()
        })?;
        archive.insert(task.index, own);
        let path = node.add_file(&file_name(task.group_id, task.size(), task.index))?;
        write_archive(&path, task, &archive)?;
        assert!(node.progress(1, 1).is_continue());
        Ok(())
    }

    fn rebuild(&self, task: &MemberTask, missing: &[u32], node: &dyn GroupMember) -> Result<()> {
        let pool = BufferPool::default();
        let survivor = (0..task.size()).find(|member| !missing.contains(member)).unwrap();
        if task.index == survivor {
            let archive = read_archive(&node.directory().join(file_name(task.group_id, task.size(), survivor)));
            for lost_member in missing {
                let mut link = node.link_to(*lost_member, &pool)?;
                for member in archive.values() {
                    send(&mut *link, member)?;
                }
                link.finish().map_err(lost)?;
            }
        } else if missing.contains(&task.index) {
            let mut link = node.link_from(survivor, &pool)?;
            let mut archive = Archive::new();
            for member in 0..task.size() {
                archive.insert(member, receive(&mut *link)?);
            }
            link.finish().map_err(lost)?;
            let (files, bytes) = &archive[&task.index];
            write_archive(&node.add_file(&file_name(task.group_id, task.size(), task.index))?, task, &archive)?;
            for meta in &files.files {
                node.add_file(&meta.file)?;
            }
            write_member(node.directory(), files, bytes)?;
        }
        Ok(())
    }

    fn parse_file_name(&self, name: &str) -> Option<SetFile> {
        let mut numbers = name.strip_suffix(".mirror")?.split('-').map(str::parse);
        let (group_id, members, member) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(SetFile { set: SetId { scheme: NAME, group_id, members }, member })
    }

    fn file_names(&self, set: SetId, member: u32) -> Vec<String> {
        vec![file_name(set.group_id, set.members, member)]
    }

    fn read_header(&self, dataset: &dyn DatasetFiles, file: &SetFile) -> Result<SetHeader> {
        let SetId { group_id, members, .. } = file.set;
        let path = dataset.location().join(file_name(group_id, members, file.member));
        let own = Meta::read(&path)?;
        let archive = read_archive(&path);
        Ok(SetHeader {
            checkpoint: own.checkpoint,
            ranks: own.ranks,
            members: archive.values().map(|(files, _)| files.rank).collect(),
            tolerance: members - 1,
            files: archive.into_iter().map(|(index, (files, _))| (index, files)).collect(),
        })
    }

    fn open_set(&self, dataset: &Arc<dyn DatasetFiles>, set: SetId, missing: &[u32], _: usize) -> Result<OpenSet> {
        let name = |member| file_name(set.group_id, set.members, member);
        let survivor = (0..set.members).find(|member| !missing.contains(member)).unwrap();
        let path = dataset.location().join(name(survivor));
        let (own, archive, whole) = (Meta::read(&path)?, read_archive(&path), fs::read(&path).unwrap());
        let lost = missing.iter().map(|index| LostFiles {
            scheme: NAME,
            checkpoint: own.checkpoint,
            ranks: own.ranks,
            files: archive[index].0.clone(),
            padded_bytes: archive[index].1.len() as u64,
            redundancy_file: name(*index),
            head: Vec::new(),
            redundancy_bytes: whole.len() as u64,
            is_redundancy_file: |name| name.ends_with(".mirror"),
        });
        let lost = lost.collect();
        let bytes: Vec<Vec<u8>> = missing.iter().map(|index| archive[index].1.clone()).collect();
        let read = move |take: &mut TakePiece<'_>| {
            for (missing, bytes) in bytes.into_iter().enumerate() {
                take(LostPiece { missing, is_redundancy: true, bytes: whole.clone() })?;
                take(LostPiece { missing, is_redundancy: false, bytes })?;
            }
            Ok(())
        };
        Ok(OpenSet { lost, pool: BufferPool::default(), read: Box::new(read) })
    }
}

fn file_name(group_id: u32, members: u32, member: u32) -> String {
    format!("{group_id}-{members}-{member}.mirror")
}

fn lost(source: std::io::Error) -> RedundancyError {
    RedundancyError::Link { neighbour: "other member", doing: "mirroring", source }
}

fn read_member(directory: &Path, index: u32, files: MemberFiles) -> Result<(MemberFiles, Vec<u8>)> {
    let mut bytes = vec![0; files.total_bytes().unwrap() as usize];
    LogicalFile::open(directory, index, &files)?.read_padded(0, &mut bytes)?;
    Ok((files, bytes))
}

fn write_member(directory: &Path, files: &MemberFiles, mut bytes: &[u8]) -> Result<()> {
    for meta in &files.files {
        let (own, rest) = bytes.split_at(meta.size as usize);
        fs::write(directory.join(&meta.file), own).unwrap();
        meta.write(&directory.join(&meta.file))?;
        bytes = rest;
    }
    Ok(())
}

fn send(link: &mut dyn LinkSender, (files, bytes): &(MemberFiles, Vec<u8>)) -> Result<()> {
    link.send(hash_file::encode(&files.to_tree())).map_err(lost)?;
    link.send([&[0], bytes.as_slice()].concat()).map_err(lost)
}

fn receive(link: &mut dyn LinkReceiver) -> Result<(MemberFiles, Vec<u8>)> {
    let (tree, _) = hash_file::decode(&link.receive().map_err(lost)?).unwrap();
    let bytes = link.receive().map_err(lost)?;
    Ok((MemberFiles::from_tree(&tree, "another member")?, bytes[1..].to_vec()))
}

/// One hash file a member, each followed by the bytes.
fn write_archive(path: &Path, task: &MemberTask, archive: &Archive) -> Result<()> {
    let mut out = Vec::new();
    for (index, (files, bytes)) in archive {
        let tree = hash_file::encode(&files.to_tree());
        out.extend(index.to_be_bytes());
        out.extend((tree.len() as u32).to_be_bytes());
        out.extend(tree);
        out.extend(bytes);
    }
    fs::write(path, &out).unwrap();
    let file = path.file_name().unwrap().to_string_lossy();
    let meta = Meta::of_application(file, out.len() as u64, task.checkpoint, task.rank()?, task.ranks);
    let (kind, crc) = (FileKind::Redundancy(NAME), Some(crc32fast::hash(&out)));
    Ok(Meta { kind, crc, ..meta }.write(path)?)
}

fn read_archive(path: &Path) -> Archive {
    let all = fs::read(path).unwrap();
    let mut rest = all.as_slice();
    let mut archive = Archive::new();
    while !rest.is_empty() {
        let (head, more) = rest.split_at(8);
        let index = u32::from_be_bytes(head[..4].try_into().unwrap());
        let length = u32::from_be_bytes(head[4..].try_into().unwrap()) as usize;
        let (tree, _) = hash_file::decode(&more[..length]).unwrap();
        let files = MemberFiles::from_tree(&tree, "an archive").unwrap();
        let size = files.total_bytes().unwrap() as usize;
        archive.insert(index, (files, more[length..length + size].to_vec()));
        rest = &more[length + size..];
    }
    archive
}
